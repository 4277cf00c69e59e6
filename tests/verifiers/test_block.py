"""Block verification: it accepts as much as one chain allows, and is rejection where there is one token."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.generation import Generation
from draftmux.testing.laws import Trial
from draftmux.testing.sampled import SampledTree
from draftmux.testing.toys import TOYS, Toy, equal_toy, random_toy
from draftmux.types import Accepts, Draft
from draftmux.verifiers.block import Block
from draftmux.verifiers.rejection import Rejection

PLAIN = Generation(temperature=1.0)


def test_what_it_declares() -> None:
    assert Block.lossless and not Block.pathwise
    assert Block().accepts == Accepts(tree=False, needs_q=False)


def reach(toy: Toy, length: int) -> float:
    """Expected running ratio of p to q, capped at 1 after every token: the chance that a prefix stands, summed up."""
    total = 0.0
    for tokens in itertools.product(range(toy.vocab_size), repeat=length):
        chance = weight = 1.0
        for at, token in enumerate(tokens):
            prefix = (*toy.prompt, *tokens[:at])
            p, q = float(np.exp(toy.p(prefix)[token])), toy.q(prefix)[token]
            if q == 0:
                chance = 0.0
                break
            chance, weight = chance * q, min(1.0, weight * p / q)
        total += chance * weight
    return total


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 16), zeros=st.sampled_from((0.0, 0.3)), length=st.integers(1, 3))
def test_it_accepts_what_the_paper_says(seed: int, zeros: float, length: int) -> None:
    """Every prefix stands with the probability of its running ratio (Sun et al., 2403.10444), whatever its length."""
    toy = random_toy(seed, zeros=zeros)
    accepted = Trial.prepare(Block(), SampledTree(toy.q, (1,) * length), toy, PLAIN).accepted()
    assert accepted == pytest.approx(sum(reach(toy, part) for part in range(1, length + 1)), abs=1e-12)


def test_one_token_is_judged_as_rejection_judges_it(judge: Any) -> None:
    toy = TOYS["random, 4 tokens"]
    for draft, _ in Trial.prepare(Block(), SampledTree(toy.q, (1,)), toy, PLAIN).drafts():
        for seed in range(50):
            assert judge(Block(), toy, draft, seed) == judge(Rejection(), toy, draft, seed)


def test_a_draft_from_p_itself_is_always_accepted(judge: Any) -> None:
    toy = equal_toy(8)
    for draft, _ in Trial.prepare(Block(), SampledTree(toy.q, (1, 1, 1)), toy, PLAIN).drafts():
        for seed in range(20):
            assert judge(Block(), toy, draft, seed).path == (0, 1, 2)


def test_a_token_stands_although_its_own_ratio_was_unlucky(judge: Any) -> None:
    """With the same numbers, block accepts a draft that rejection cuts short."""
    toy, longer = TOYS["random"], 0
    for draft, _ in Trial.prepare(Block(), SampledTree(toy.q, (1, 1, 1)), toy, PLAIN).drafts():
        for seed in range(20):
            longer += len(judge(Block(), toy, draft, seed).path) > len(judge(Rejection(), toy, draft, seed).path)
    assert longer > 20


def test_without_a_draft_the_token_comes_from_p(judge: Any) -> None:
    toy = TOYS["one-hot p"]
    likeliest = int(np.argmax(toy.p(toy.prompt)))
    assert {judge(Block(), toy, Draft.empty(), seed).token for seed in range(30)} == {likeliest}
