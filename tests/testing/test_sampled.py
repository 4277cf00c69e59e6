"""Sampled drafters as real ones: within any budget, the same for the same seed and root, nothing drawn twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.generation import Generation
from draftmux.testing.sampled import CHAINS, KINDS, KeyedNoise, SampledDrafter
from draftmux.testing.strategies import budgets
from draftmux.testing.toys import TOYS
from draftmux.tree import ROOT, is_chain
from draftmux.types import Budget, Context, Draft


def propose(drafter: SampledDrafter, budget: Budget, seed: int = 0, length: int = 2) -> Draft:
    tokens = np.array([0, 1, 2, 0, 1, 2][:length])
    context = Context("request", tokens, 1, 99, {}, (), Generation(temperature=1.0, seed=seed))
    return drafter.propose_one(context, drafter.begin(context), budget)


def same(one: Draft, other: Draft) -> bool:
    return bool(np.array_equal(one.tokens, other.tokens) and np.array_equal(one.parents, other.parents))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(budget=budgets(6), seed=st.integers(0, 1 << 16), toy=st.sampled_from(sorted(TOYS)))
def test_a_draft_keeps_its_budget_and_what_its_drafter_declares(kind: str, budget: Budget, seed: int, toy: str) -> None:
    drafter = KINDS[kind](TOYS[toy].q)
    draft = propose(drafter, budget, seed)
    leaves = len(draft) - len(set(draft.parents.tolist()) - {ROOT})
    assert len(draft) <= budget.max_nodes and leaves <= budget.max_branches
    assert draft.depths.max(initial=0) <= budget.max_depth
    assert drafter.emits.tree == (kind not in CHAINS) and (drafter.emits.tree or is_chain(draft.parents))
    if draft.q is not None:
        assert drafter.emits.q and draft.q.shape == (len(draft), TOYS[toy].vocab_size)
        assert torch.allclose(draft.q.sum(-1), torch.ones(len(draft), dtype=torch.float64))
        assert (draft.q[range(len(draft)), draft.tokens.tolist()] > 0).all()
    else:
        assert not drafter.emits.q or not len(draft)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "point" not in kind])
def test_seed_and_root_decide_the_draft(kind: str) -> None:
    drafter = KINDS[kind](TOYS["ends"].q)
    drafts = [propose(drafter, Budget(), seed) for seed in range(40)]
    assert all(same(draft, propose(drafter, Budget(), seed)) for seed, draft in enumerate(drafts))
    assert not all(same(draft, drafts[0]) for draft in drafts)


def test_keys_roots_and_seeds_have_numbers_of_their_own() -> None:
    """500 laws of equal shares: what two sources draw agrees as often as chance has it."""
    law, sources = torch.ones(4, dtype=torch.float64), [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    drawn = [
        [KeyedNoise(seed + 2 * number, root + 2 * number).draw(law, key + 2 * number) for number in range(500)]
        for seed, root, key in sources
    ]
    for at, one in enumerate(drawn):
        for other in drawn[:at]:
            agreed = sum(a == b for a, b in zip(one, other, strict=True))
            assert abs(agreed - 125) < 5 * (500 * 3 / 16) ** 0.5
