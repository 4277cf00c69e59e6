"""Stage 2: group-relative policy optimisation on whole decodings with the arbiter (2402.03300, and CoSpec's reward)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import frozen

from draftmux.verifiers.cospec.network import Batch
from draftmux.verifiers.cospec.policy import Decisions, divergence, entropy, log_probability, loss_of, weights
from draftmux.verifiers.cospec.reward import Rollout, advantages, span
from draftmux.verifiers.cospec.rollouts import Course, roll_out, watching

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.arbitration import BoundArbitration
    from draftmux.verifiers.cospec.mining import Rig
    from draftmux.verifiers.cospec.network import Network, Sample
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.recipe import Objective
    from draftmux.verifiers.cospec.reward import Reward


@frozen(eq=False)
class Scored:
    """One rollout: its course, whether it was right, what it earned and its advantage; tokens, and target passes."""

    problem: Problem
    course: Course
    right: bool
    reward: float
    advantage: float
    tokens: int
    passes: int


@frozen(eq=False)
class Group:
    """How rollouts are made and valued: `size` of each problem."""

    size: int
    reward: Reward
    scaled: bool = True

    def play(
        self, rig: Rig, problems: Sequence[Problem], task: Task, arbitration: BoundArbitration, seed: int
    ) -> list[Scored]:
        """`size` rollouts of every problem, by problem."""
        parts, watched = watching(rig.parts, arbitration, explore=True)
        asks = [
            rig.ask(f"{problem.key}/{number}", problem, seed=seed * self.size + number)
            for problem in problems
            for number in range(self.size)
        ]
        results = roll_out(parts, rig.tokenizer, asks, rig.batch)
        scored = []
        for problem in problems:
            names = [f"{problem.key}/{number}" for number in range(self.size)]
            courses = [watched.courses[name] for name in names]
            right = [task.solved(rig.text(results[name].tokens), problem.reference) for name in names]
            earned = [self.reward.of(valued(*pair)) for pair in zip(courses, right, strict=True)]
            gains = advantages(earned, right, self.scaled).tolist()
            for i, name in enumerate(names):
                result = results[name]
                scored.append(
                    Scored(problem, courses[i], right[i], earned[i], gains[i], len(result.tokens), result.metrics.steps)
                )
        return scored


def valued(course: Course, right: bool) -> Rollout:
    """What is rewarded of a course."""
    return Rollout(right, course.blocks, course.kept_logprobs, course.decisions, course.refused)


@frozen(eq=False)
class Decided:
    """One block with its decisions, and the advantage and weight of each."""

    sample: Sample
    places: tuple[int, ...]
    kept: tuple[bool, ...]
    advantage: float
    weight: float


def decided(rollouts: Sequence[Scored], mean: str) -> list[Decided]:
    """All decisions of a step's rollouts with an advantage; rollouts without any have no term."""
    each = weights([scored.course.decisions for scored in rollouts], mean)
    return [
        Decided(block.sample, tuple(block.places), tuple(block.kept), scored.advantage, weight)
        for scored, weight in zip(rollouts, each, strict=True)
        for block in scored.course.consulted
        if block.places and scored.advantage
    ]


@frozen(eq=False)
class Minibatch:
    """Blocks, the places `(n,)` of their decisions in `(B, K)` laid flat, and the decisions."""

    blocks: Batch
    flat: Tensor
    decisions: Decisions

    def logits(self, network: Network) -> Tensor:
        """`(n,)`."""
        found: Tensor = network(self.blocks)
        return found.flatten()[self.flat]


def minibatches(
    blocks: Sequence[Decided], networks: tuple[Network, Network], layout: tuple[int, int], rows: int, heat: float
) -> Iterator[Minibatch]:
    """All blocks, `rows` at once, with log-probabilities of the policy as it is now, and logits of the reference.

    `networks`: policy and reference; `layout`: window and separator.
    """
    order = sorted(blocks, key=lambda block: block.sample.size)
    for at in range(0, len(order), rows):
        part = order[at : at + rows]
        batch = Batch.of([block.sample for block in part], *layout)
        width = batch.rows.shape[1]
        flat = torch.tensor([i * width + place for i, block in enumerate(part) for place in block.places])
        kept = torch.tensor([done for block in part for done in block.kept])
        gains, shares = (
            torch.tensor([getattr(block, name) for block in part for _ in block.places], dtype=torch.float32)
            for name in ("advantage", "weight")
        )
        with torch.no_grad():
            policy, reference = (network(batch).flatten()[flat] for network in networks)
        behaviour = log_probability(policy, kept, heat)
        yield Minibatch(batch, flat, Decisions(kept, behaviour, reference, gains, shares))


def step(
    batches: Sequence[Minibatch], network: Network, objective: Objective, optimizer: torch.optim.Optimizer, clip: float
) -> dict[str, float]:
    """One update; figures of it."""
    optimizer.zero_grad()
    loss, drift, spread, count = 0.0, 0.0, 0.0, 0
    for each in batches:
        logits = each.logits(network)
        own = loss_of(objective, each.decisions, logits)
        own.backward()
        with torch.no_grad():
            loss += float(own)
            drift += float(divergence(logits, each.decisions.reference, objective.temperature).sum())
            spread += float(entropy(logits, objective.temperature).sum())
            count += len(logits)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    norm = torch.nn.utils.clip_grad_norm_(trained, clip)
    if not bool(norm.isfinite()):
        raise FloatingPointError("the gradient is not finite; lower --learning-rate, or train in float32")
    optimizer.step()
    return {"loss": loss, "kl": drift / max(1, count), "entropy": spread / max(1, count), "gradient_norm": float(norm)}


def monitors(rollouts: Sequence[Scored], size: int) -> dict[str, float]:
    """What a step's rollouts look like."""
    decisions = sum(scored.course.decisions for scored in rollouts)
    refused = sum(scored.course.refused for scored in rollouts)
    groups = [rollouts[at : at + size] for at in range(0, len(rollouts), size)]
    kept = [logprob for scored in rollouts for logprob in scored.course.kept_logprobs]
    return {
        "right": float(np.mean([scored.right for scored in rollouts])),
        "reward": float(np.mean([scored.reward for scored in rollouts])),
        "kept": 1 - refused / decisions if decisions else 0.0,
        "span": float(np.mean([span(scored.course.blocks) for scored in rollouts])),
        "kept_logprob": float(np.mean(kept)) if kept else 0.0,
        "groups_alike": float(np.mean([not any(scored.advantage for scored in group) for group in groups])),
        "groups_mixed": float(np.mean([len({scored.right for scored in group}) == 2 for group in groups])),
        "tokens_per_pass": sum(scored.tokens for scored in rollouts) / max(1, sum(s.passes for s in rollouts)),
    }
