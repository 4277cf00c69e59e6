"""The exact law of every lossless verifier on every kind of draft, by enumeration, against plain decoding."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.generation import Generation
from draftmux.testing.chances import Chances, courses
from draftmux.testing.constraints import Automaton
from draftmux.testing.laws import DEAD, Book, Trial, check_law
from draftmux.testing.sampled import CHAINS, KINDS, TREES, Coupled, Likeliest, SampledTree
from draftmux.testing.toys import TOYS, Toy, random_toy, trapping_toy
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftmux.protocols import Verifier
    from draftmux.testing.sampled import SampledDrafter

VERIFIERS: tuple[Verifier, ...] = (ExactMatch(), Rejection(), Block(), Traversal())
PLAIN = Generation(temperature=1.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.7},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.4},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "frequency and presence": {"frequency_penalty": 0.9, "presence_penalty": 0.4},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_word_ids": {"bad_word_ids": [[1, 0], [0, 0]]},
    "logit_bias": {"logit_bias": {1: 1.5}},
    "min_new_tokens": {"min_new_tokens": 2, "stop_ids": [2]},
    "max_new_tokens": {"max_new_tokens": 2},
    "constraint": {"constraint": Automaton(7)},
    "several": {"temperature": 1.4, "top_k": 2, "repetition_penalty": 1.3, "stop_ids": [0], "min_new_tokens": 1},
}
HEAVY = ("tree", "distinct tree", "tree that stops", "copied and sampled tree")
FEW = (("a third is 0", "several"), ("random", "plain"), ("ends", "no_repeat_ngram_size"))


def pairs() -> list[Any]:
    """Every verifier with every kind of draft that it takes."""
    kinds = {verifier: KINDS if verifier.accepts.tree else CHAINS for verifier in VERIFIERS}
    return [pytest.param(v, kind, id=f"{type(v).__name__}-{kind}") for v in VERIFIERS for kind in kinds[v]]


def cases(kind: str) -> list[tuple[str, str]]:
    """Toys and settings: all of both, each kind of draft in other pairs; a few where there are many drafts."""
    if kind in HEAVY:
        return list(FEW[: 1 if kind == "tree" else 3])
    toys = [toy for toy in TOYS if "branches" not in kind or "4 tokens" not in toy]
    turn = list(KINDS).index(kind)
    return [(toys[(turn + number) % len(toys)], setting) for number, setting in enumerate(SETTINGS)]


@pytest.mark.parametrize(("verifier", "kind"), pairs())
def test_one_round_keeps_the_law(verifier: Verifier, kind: str) -> None:
    for toy, setting in cases(kind):
        check_law(verifier, kind, TOYS[toy], Generation(**{"temperature": 1.0, **SETTINGS[setting]}))


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: type(verifier).__name__)
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 1 << 16), zeros=st.sampled_from((0.0, 0.3, 0.6)))
def test_one_round_keeps_any_law(verifier: Verifier, data: st.DataObject, seed: int, zeros: float) -> None:
    light = [kind for kind in (KINDS if verifier.accepts.tree else CHAINS) if kind not in HEAVY]
    setting = data.draw(st.sampled_from(list(SETTINGS)))
    generation = Generation(**{"temperature": 1.0, **SETTINGS[setting]})
    check_law(verifier, data.draw(st.sampled_from(light)), random_toy(seed, zeros=zeros), generation)


SMALL: dict[str, Callable[[Toy], SampledDrafter]] = {
    "chain": lambda toy: SampledTree(toy.q, (1, 1)),
    "coupled chain": lambda toy: Coupled(toy.q, 2),
    "siblings": lambda toy: SampledTree(toy.q, (2,)),
    "distinct siblings": lambda toy: SampledTree(toy.q, (2,), replace=False),
    "point masses": lambda toy: Likeliest(toy.q, (2, 1)),
}


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: type(verifier).__name__)
def test_whole_requests_keep_the_law(verifier: Verifier, kind: str) -> None:
    """Three tokens, as many rounds as it takes: no round learns from the noise of an earlier one."""
    drafter = SMALL[kind](TOYS["random"])
    if drafter.emits.tree and not verifier.accepts.tree:
        pytest.skip("a verifier of chains")
    for toy in ("random", "ends"):
        check_law(verifier, SMALL[kind](TOYS[toy]), TOYS[toy], Generation(max_new_tokens=3, temperature=1.0), rounds=3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("tree", "distinct tree")])
@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: type(verifier).__name__)
def test_a_draft_through_a_dead_end_keeps_the_law_up_to_there(verifier: Verifier, kind: str) -> None:
    if kind in TREES and not verifier.accepts.tree:
        pytest.skip("a verifier of chains")
    toy = trapping_toy(40)
    generation = Generation(temperature=1.0, bad_word_ids=[[2, 0]])
    book = Book(toy, generation)
    assert book.after((2,)) is None and book.after(()) is not None
    check_law(verifier, kind, toy, generation)
    if kind not in HEAVY:  # every third token is a trap
        check_law(verifier, kind, TOYS["a third is 0"], Generation(temperature=1.0, no_repeat_ngram_size=1))


def test_a_dead_end_is_where_the_string_ends() -> None:
    toy, generation = trapping_toy(40), Generation(temperature=1.0, bad_word_ids=[[2, 0]])
    strings = Book(toy, generation).strings(4)
    assert any(string[-1] == DEAD for string in strings)
    assert all(string.index(DEAD) == len(string) - 1 for string in strings if DEAD in string)
    assert sum(strings.values()) == pytest.approx(1, abs=1e-12)


def test_a_second_round_that_begins_in_a_dead_end_ends_the_request() -> None:
    generation = Generation(temperature=1.0, bad_word_ids=[[2, 0]])
    toy = trapping_toy(40)
    for verifier, widths in ((Block(), (1, 1)), (Rejection(), (2,)), (ExactMatch(), (1,))):
        check_law(verifier, SampledTree(toy.q, widths), toy, generation, rounds=2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tree"])
def test_every_node_is_drawn_from_its_row_of_q(kind: str) -> None:
    """So the chance of a draft is the product of what its rows give its tokens; point masses have chance 1."""
    for name in ("random", "a third is 0", "one-hot q"):
        drafts = list(Trial.prepare(ExactMatch(), kind, TOYS[name], PLAIN).drafts())
        assert sum(probability for _, probability in drafts) == pytest.approx(1, abs=1e-12)
        for draft, probability in drafts:
            assert (draft.q is None) == (kind in ("coupled chain", "chain of point masses", "tree of point masses"))
            if draft.q is not None:
                own = draft.q[range(len(draft)), draft.tokens.tolist()]
                assert probability == pytest.approx(float(own.prod()), abs=1e-12)


def test_the_kinds_of_draft_are_what_their_names_say() -> None:
    sizes: dict[str, Counter[int]] = {kind: Counter() for kind in KINDS}
    twins = dict.fromkeys(KINDS, False)
    for kind in KINDS:
        for draft, _ in Trial.prepare(ExactMatch(), kind, TOYS["random"], PLAIN).drafts():
            sizes[kind][len(draft)] += 1
            twins[kind] |= len(draft.children) < len(draft)
    assert all(len(sizes[kind]) > 1 for kind in KINDS if "stops" in kind), sizes
    assert {kind for kind, some in twins.items() if some} == {
        "siblings",
        "branches",
        "tree",
        "tree that stops",
        "copied and sampled tree",
        "copied and sampled siblings",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_judging_the_whole_draft_accepts_no_less(kind: str) -> None:
    """Block and traversal accept at least as many tokens as rejection, and more where more than one is at stake."""
    gains = []
    for name in ("random", "a third is 0", "p is q", "one-hot q")[: 1 if kind == "tree" else None]:
        means = [Trial.prepare(v, kind, TOYS[name], PLAIN).accepted() for v in (Rejection(), Traversal())]
        if kind in CHAINS:
            assert Trial.prepare(Block(), kind, TOYS[name], PLAIN).accepted() == pytest.approx(means[1], abs=1e-12)
        gains.append(means[1] - means[0])
    assert min(gains) > -1e-12, gains
    alike = ("coupled", "point", "siblings")  # point masses and single tokens leave nothing to gain
    assert (max(gains) > 1e-3) == (not any(word in kind for word in alike)), gains


@pytest.mark.parametrize("length", [1, 2, 3])
def test_rejection_accepts_as_often_as_the_formula_says(length: int) -> None:
    """With acceptance a per token, a round gives (1 - a^(K+1)) / (1 - a) tokens: Leviathan et al., equation 1."""
    p, q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
    toy = Toy(lambda prefix: [math.log(share) for share in p], lambda prefix: q)
    a = sum(map(min, p, q))
    accepted = Trial.prepare(Rejection(), SampledTree(toy.q, (1,) * length), toy, PLAIN).accepted()
    assert accepted + 1 == pytest.approx((1 - a ** (length + 1)) / (1 - a), abs=1e-12)


def test_a_number_that_is_used_again_answers_from_what_is_left_of_it() -> None:
    def work(chances: Chances) -> tuple[bool, bool, int]:
        law = torch.tensor([1.0, 3.0])
        return chances.below("u", 0.5), chances.below("u", 0.2), chances.choose("u", law)

    found = {course.result: course.probability for course in courses(work, {})}
    assert found == pytest.approx(
        {(True, True, 0): 0.2, (True, False, 0): 0.05, (True, False, 1): 0.25, (False, False, 1): 0.5}
    )


def test_numbers_by_different_names_are_independent() -> None:
    def work(chances: Chances) -> tuple[bool, bool]:
        return chances.below("u", 0.25), chances.below("v", 0.5)

    found = {course.result: course.probability for course in courses(work, {})}
    assert found == pytest.approx(
        {(True, True): 1 / 8, (True, False): 1 / 8, (False, True): 3 / 8, (False, False): 3 / 8}
    )
