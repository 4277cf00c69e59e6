"""Rejection sampling: how often it accepts, and what it does at the edges. That its law is right: tests/lossless."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from draftmux.generation import Generation
from draftmux.testing.laws import Trial, check_law
from draftmux.testing.sampled import Likeliest, SampledTree
from draftmux.testing.toys import TOYS, Toy, disjoint_toy, equal_toy, random_toy
from draftmux.types import Accepts, Draft
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection

PLAIN = Generation(temperature=1.0)


def accepted(drafter: Any, toy: Toy, verifier: Any = Rejection()) -> float:  # noqa: B008
    return Trial.prepare(verifier, drafter, toy, PLAIN).accepted()


def laws(toy: Toy) -> tuple[Any, Any]:
    return np.exp(np.array(toy.p(toy.prompt))), np.array(toy.q(toy.prompt))


def test_what_it_declares() -> None:
    assert Rejection.lossless and not Rejection.pathwise
    assert Rejection().accepts == Accepts(tree=True, needs_q=False)


@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_one_token_is_accepted_as_often_as_p_and_q_overlap(seed: int) -> None:
    toy = random_toy(seed, 4, zeros=0.3)
    assert accepted(SampledTree(toy.q, (1,)), toy) == pytest.approx(np.minimum(*laws(toy)).sum(), abs=1e-12)


@pytest.mark.parametrize("seed", range(0, 20, 2))
def test_siblings_are_accepted_as_often_as_their_residuals_say(seed: int) -> None:
    """Independent siblings: after each rejection the same q meets what it left of p."""
    toy = random_toy(seed, 4)
    p, q = laws(toy)
    missed = 1.0
    for _ in range(3):
        overlap = np.minimum(p, q).sum()
        missed *= 1 - overlap
        p = np.maximum(p - q, 0) / max(1 - overlap, 1e-300)
    assert accepted(SampledTree(toy.q, (3,)), toy) == pytest.approx(1 - missed, abs=1e-12)


def test_all_tokens_as_distinct_siblings_leave_nothing_to_reject() -> None:
    toy = TOYS["random"]
    assert accepted(SampledTree(toy.q, (3,), replace=False), toy) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["random", "a third is 0"])
def test_point_masses_are_accepted_as_often_as_by_exact_match(name: str) -> None:
    toy = TOYS[name]
    for widths in ((1, 1), (2, 2)):
        points = Likeliest(toy.q, widths)
        assert accepted(points, toy) == pytest.approx(accepted(points, toy, ExactMatch()), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_draft_from_p_itself_is_always_accepted(judge: Any, dtype: torch.dtype) -> None:
    toy, drafted = equal_toy(8), []
    for draft, _ in Trial.prepare(Rejection(), SampledTree(toy.q, (1, 1)), toy, PLAIN).drafts():
        drafted.append(draft)
        for seed in range(30):
            assert judge(Rejection(), toy, draft, seed, dtype).path == (0, 1)
    assert len(drafted) > 3


def test_a_token_that_the_target_rules_out_is_never_accepted(judge: Any) -> None:
    toy = disjoint_toy(10)
    p, _ = laws(toy)
    for draft, _ in Trial.prepare(Rejection(), SampledTree(toy.q, (2,)), toy, PLAIN).drafts():
        for seed in range(30):
            acceptance = judge(Rejection(), toy, draft, seed)
            assert acceptance.path == () and p[acceptance.token] > 0


def test_without_a_draft_the_token_comes_from_p(judge: Any) -> None:
    toy = disjoint_toy(10)
    tokens = {judge(Rejection(), toy, Draft.empty(), seed).token for seed in range(60)}
    assert tokens == set(np.flatnonzero(laws(toy)[0]).tolist())


def test_narrow_numbers_decide_as_wide_ones_do(judge: Any) -> None:
    """Logits and q in float32: the same decisions, but where a number comes closer than rounding."""
    toy, same = TOYS["random, 4 tokens"], []
    for draft, _ in Trial.prepare(Rejection(), SampledTree(toy.q, (2, 1)), toy, PLAIN).drafts():
        narrow = Draft(draft.tokens, draft.parents, draft.q.float() if draft.q is not None else None)
        same.append(judge(Rejection(), toy, draft) == judge(Rejection(), toy, narrow, dtype=torch.float32))
    assert len(same) > 100 and sum(same) >= len(same) - 1


class Timid(Rejection):
    """Accepts half as often as it may, and leaves the residual right: lossless, and slow."""

    def _child(self, parent: int, draft: Draft, sampler: Any) -> tuple[int | None, Any]:
        law = sampler.p(parent)
        for node in draft.siblings.get(parent, ()):
            q, token = sampler.q(node), int(draft.tokens[node])
            if sampler.bernoulli(min(1.0, float(law[token] / q[token])) / 2, node):
                return node, law
            law = law - torch.minimum(law, q) / 2
            law = law / law.sum()
        return None, law


def test_a_law_alone_does_not_show_a_rule_that_accepts_too_little() -> None:
    toy = TOYS["random"]
    check_law(Timid(), "chain", toy)
    assert accepted(SampledTree(toy.q, (1,)), toy, Timid()) < np.minimum(*laws(toy)).sum() - 0.1
