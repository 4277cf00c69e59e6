"""The policy and its loss: log-probabilities, the exact divergence, gradients, and a toy that must be learned."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draftmux.verifiers.cospec.policy import Decisions, divergence, entropy, log_probability, loss_of, weights
from draftmux.verifiers.cospec.recipe import Objective
from draftmux.verifiers.cospec.reward import advantages

LOGITS = st.floats(-8, 8)
HEAT = st.sampled_from((0.5, 1.0, 2.0))


def row(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(logit=LOGITS, heat=HEAT)
def test_probabilities_are_those_of_the_tempered_logit(logit: float, heat: float) -> None:
    keep = 1 / (1 + math.exp(-logit / heat))
    found = log_probability(row(logit, logit), torch.tensor([True, False]), heat).exp()
    assert found.tolist() == pytest.approx([keep, 1 - keep])
    by_hand = -sum(p * math.log(p) for p in (keep, 1 - keep))
    assert float(entropy(row(logit), heat)) == pytest.approx(by_hand)


@given(one=LOGITS, two=LOGITS, heat=HEAT)
def test_the_divergence_is_exact(one: float, two: float, heat: float) -> None:
    p, q = (1 / (1 + math.exp(-each / heat)) for each in (one, two))
    by_hand = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    found = float(divergence(row(one), row(two), heat))
    assert found == pytest.approx(by_hand, abs=1e-9) and found >= -1e-12
    assert float(divergence(row(one), row(one), heat)) == 0


def decisions(logits: torch.Tensor, kept: list[bool], heat: float, advantage: list[float]) -> Decisions:
    done = torch.tensor(kept)
    behaviour = log_probability(logits.detach(), done, heat)
    return Decisions(done, behaviour, logits.detach() - 0.3, row(*advantage), row(*[1 / len(kept)] * len(kept)))


@given(heat=HEAT, logits=st.lists(LOGITS, min_size=3, max_size=3))
def test_before_an_update_the_ratio_is_one(heat: float, logits: list[float]) -> None:
    """So the loss is minus the mean advantage, whatever the temperature of exploration."""
    own = row(*logits)
    batch = decisions(own, [True, False, True], heat, [0.5, -1.0, 2.0])
    assert float(loss_of(Objective(temperature=heat, beta=0.0), batch, own)) == pytest.approx(-0.5)


def test_an_untempered_behaviour_policy_would_be_seen() -> None:
    own = row(2.0, -1.0, 3.0)
    batch = decisions(own, [True, False, True], 2.0, [0.5, -1.0, 2.0])
    cold = Decisions(batch.kept, log_probability(own, batch.kept, 1.0), batch.reference, batch.advantage, batch.weight)
    assert float(loss_of(Objective(temperature=2.0, beta=0.0), cold, own)) != pytest.approx(-0.5, abs=1e-2)


@pytest.mark.parametrize("objective", [Objective(), Objective(beta=0.7, temperature=2.0), Objective(entropy_bonus=0.3)])
def test_gradients_are_those_of_finite_differences(objective: Objective) -> None:
    base = row(0.3, -1.2, 2.0)
    batch = decisions(base, [True, False, False], objective.temperature, [1.0, -0.5, 0.7])
    assert torch.autograd.gradcheck(lambda logits: loss_of(objective, batch, logits), (base + 0.05).requires_grad_())


def test_a_ratio_beyond_its_limits_has_no_gradient() -> None:
    batch = decisions(row(0.0), [True], 1.0, [1.0])
    far = row(2.0).requires_grad_()
    loss_of(Objective(beta=0.0), batch, far).backward()
    assert far.grad is not None and float(far.grad) == 0
    back = row(-2.0).requires_grad_()  # the draft became less likely, though it was good: that is undone
    loss_of(Objective(beta=0.0), batch, back).backward()
    assert back.grad is not None and float(back.grad) < 0


def test_weights_of_decisions() -> None:
    assert weights([2, 0, 3], "dapo") == pytest.approx([0.2, 0, 0.2])
    assert weights([2, 0, 3], "grpo") == pytest.approx([1 / 6, 0, 1 / 9])
    assert weights([0, 0], "dapo") == [0, 0]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_policy_learns_which_branch_is_better(sign: int) -> None:
    """Two states; in one the draft is right, in the other the target. With the sign turned it learns the opposite."""
    torch.manual_seed(0)
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(200):
        state = torch.randint(2, (8,))
        kept = torch.rand(8, dtype=torch.float64) < logits[state].sigmoid()
        right = [bool(k) == bool(s) for k, s in zip(kept, state, strict=True)]
        gains = sign * torch.from_numpy(advantages([1.5 if r else -0.5 for r in right], right))
        behaviour = log_probability(logits[state].detach(), kept, 1.0)
        batch = Decisions(kept, behaviour, torch.zeros(8, dtype=torch.float64), gains, torch.full((8,), 1 / 8))
        optimizer.zero_grad()
        loss_of(Objective(), batch, logits[state]).backward()
        optimizer.step()
    keep = logits.detach().sigmoid()
    assert (keep[1] > 0.9 and keep[0] < 0.1) if sign > 0 else (keep[1] < 0.1 and keep[0] > 0.9)
