"""The arbiter as a policy: a Bernoulli choice at each decision, at an exploration temperature, and the loss of GRPO.

Every log-probability is of the tempered policy, behaviour and current alike, so their ratio is 1 before the first
update. Only decisions that were put to the arbiter and took effect are in the loss; those behind a refusal had none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import frozen
from torch.nn.functional import logsigmoid

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.verifiers.cospec.recipe import Objective


def log_probability(logits: Tensor, kept: Tensor, temperature: float) -> Tensor:
    """`log pi(action)`, `(n,)`, of decisions with these logits `(n,)`; `kept (n,)` is True where the draft was kept."""
    tempered = logits / temperature
    return logsigmoid(torch.where(kept, tempered, -tempered))


def entropy(logits: Tensor, temperature: float) -> Tensor:
    """Of each decision, `(n,)`, in nats."""
    tempered = logits / temperature
    keep = tempered.sigmoid()
    return -(keep * logsigmoid(tempered) + (1 - keep) * logsigmoid(-tempered))


def divergence(logits: Tensor, reference: Tensor, temperature: float) -> Tensor:
    """`KL(pi || pi_ref)` of each decision, `(n,)`, in nats: exact, a decision has two outcomes."""
    own, other = logits / temperature, reference / temperature
    keep = own.sigmoid()
    return keep * (logsigmoid(own) - logsigmoid(other)) + (1 - keep) * (logsigmoid(-own) - logsigmoid(-other))


def loss_of(objective: Objective, batch: Decisions, logits: Tensor) -> Tensor:
    """The loss of a batch's share in its step; shares add up."""
    ratio = (log_probability(logits, batch.kept, objective.temperature) - batch.behaviour).exp()
    clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high)
    gain = torch.minimum(ratio * batch.advantage, clipped * batch.advantage)
    if objective.beta:
        gain = gain - objective.beta * divergence(logits, batch.reference, objective.temperature)
    if objective.entropy_bonus:
        gain = gain + objective.entropy_bonus * entropy(logits, objective.temperature)
    return -(gain * batch.weight).sum()


@frozen(eq=False)
class Decisions:
    """n decisions: what was done, its log-probability under the policy that did it, the logits of the warm-up policy,
    the advantage of the rollout, and the weight of each in the mean. All `(n,)`."""

    kept: Tensor
    behaviour: Tensor
    reference: Tensor
    advantage: Tensor
    weight: Tensor


def weights(decisions_of: list[int], mean: str) -> list[float]:
    """The weight of one decision of each rollout, given how many each has; rollouts without any have no term."""
    total = sum(decisions_of)
    if mean == "dapo":
        return [1 / total if count else 0.0 for count in decisions_of]
    return [1 / (len(decisions_of) * count) if count else 0.0 for count in decisions_of]
