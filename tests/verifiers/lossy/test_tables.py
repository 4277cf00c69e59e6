"""Worked examples: every threshold below was computed on paper, with natural logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from draftmux.generation import Generation
from draftmux.types import Accepts, Draft
from draftmux.verifiers.lossy.aasd import Aasd
from draftmux.verifiers.lossy.fly import Fly
from draftmux.verifiers.lossy.judging import entropy
from draftmux.verifiers.lossy.typical import Typical

Chain = Callable[..., Any]

EVEN = (0.5, 0.25, 0.125, 0.125)  # H = 1.75 ln 2 = 1.2130
SURE = (0.94, 0.03, 0.02, 0.01)  # over three: .0582 + .1052 + .0782 = .2416
UNSURE = (0.4, 0.3, 0.2, 0.1)  # over three: .3665 + .3612 + .3219 = 1.0496
FLAT = (1 / 64,) * 64  # over three: 3 x .0650 = .1949; over all ln 64 = 4.1589, over three renormalised ln 3
TINY = 1e-9


@pytest.mark.parametrize("verifier", [Typical(), Fly(), Aasd()], ids=lambda verifier: type(verifier).__name__)
def test_they_are_lossy_and_take_any_draft(verifier: Any) -> None:
    assert not verifier.lossless and not verifier.pathwise
    assert verifier.accepts == Accepts(tree=True, needs_q=False)


def test_defaults_are_the_published_ones() -> None:
    assert (Typical().epsilon, Typical().delta) == (0.09, 0.3)
    assert (Fly().entropy_threshold, Fly().window_following, Fly().top) == (0.3, 5, 3)


def test_entropy() -> None:
    assert float(entropy(torch.tensor(EVEN, dtype=torch.float64))) == pytest.approx(1.75 * math.log(2))
    assert float(entropy(torch.tensor([0.0, 1.0]))) == 0
    assert math.isnan(float(entropy(torch.tensor([math.nan, 1.0]))))


# Typical acceptance.


@pytest.mark.parametrize(
    ("law", "stand"),
    [
        (EVEN, {0, 1, 2, 3}),  # .3 exp(-1.2130) = .0892
        ((0.5, 0.25, 0.125, 0.075, 0.05), {0, 1, 2}),  # H = 1.2971, .3 x .2733 = .0820; swapped: .0246
        ((0.9, 0.05, 0.05), {0}),  # H = .3944, .3 x .6741 = .2022, so epsilon
        ((0.88, 0.1, 0.02), {0, 1}),  # H = .4210, .3 x .6564 = .1969, so epsilon
        ((1 / 16,) * 16, set(range(16))),  # .3 / 16
        ((0.0, 1.0), {1}),
    ],
)
def test_typical_tokens(chain_over: Chain, law: tuple[float, ...], stand: set[int]) -> None:
    found = {x for x in range(len(law)) if chain_over([x], [law, law]).judged_by(Typical()).path == (0,)}
    assert found == stand


def test_typical_thresholds_are_options(chain_over: Chain) -> None:
    step = chain_over([1], [(0.9, 0.05, 0.05)] * 2)
    assert step.judged_by(Typical(epsilon=0.049)).path == (0,)
    assert step.judged_by(Typical(delta=0.07)).path == (0,)  # .07 x .6741 = .0472
    assert step.judged_by(Typical(delta=0.08)).path == ()  # .0539


def test_typical_takes_the_longest_branch_then_the_likeliest(made: Any) -> None:
    # Two nodes at the root, two below the unlikelier one: length first, then sum log p, then order.
    tree = Draft([0, 1, 0, 1], [-1, -1, 1, 1])
    flipped = (0.25, 0.5, 0.125, 0.125)
    assert made(tree, [EVEN, EVEN, EVEN, EVEN, EVEN]).judged_by(Typical()).path == (1, 2)
    assert made(tree, [EVEN, EVEN, flipped, EVEN, EVEN]).judged_by(Typical()).path == (1, 3)
    # The branch of the better last token loses by its first one: .25 x .5 against .5 x .3.
    crossed = Draft([1, 0, 0, 0], [-1, -1, 0, 1])
    mild = (0.3, 0.3, 0.2, 0.2)
    assert made(crossed, [EVEN, EVEN, mild, EVEN, EVEN]).judged_by(Typical()).path == (1, 3)
    assert made(Draft([2, 3], [-1, -1]), [EVEN] * 3).judged_by(Typical()).path == (0,)


def test_typical_ends_with_the_targets_own_pick(chain_over: Chain) -> None:
    step = chain_over([1, 2], [EVEN, (0.0, 0.0, 0.0, 1.0), EVEN])
    acceptance = step.judged_by(Typical())
    assert (acceptance.path, acceptance.token) == ((0,), 3)
    assert acceptance.token == step.sampler.pick(0)


# FLy. The target's own token is 0 everywhere at temperature 0.


@pytest.mark.parametrize(
    ("tokens", "accepted"),
    [
        ([0, 0, 0], 3),
        ([1, 0, 0, 0, 0, 0, 0], 7),  # five matches and one token to spare
        ([1, 0, 0, 0, 0, 0], 0),  # five matches, but the mismatch is in the last window
        ([0, 1, 0, 0, 0, 0, 0], 1),
        ([1, 0, 0, 0, 0, 0, 1], 6),  # the spare token need not match, and does not stand
        ([1, 0, 0, 0, 0, 1, 0], 0),
        ([1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], 0),
        ([1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], 13),
        ([1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0], 6),
        ([1, 1, 0, 0, 0, 0, 0, 0, 0], 0),
    ],
)
def test_the_window(chain_over: Chain, tokens: list[int], accepted: int) -> None:
    step = chain_over(tokens, [UNSURE] * (len(tokens) + 1), temperature=0)
    acceptance = step.judged_by(Fly())
    assert (len(acceptance.path), acceptance.token) == (accepted, 0)


@pytest.mark.parametrize(
    ("law", "options", "passes"),
    [
        (UNSURE, {}, True),
        (SURE, {}, False),
        (SURE, {"entropy_threshold": 0.241}, True),
        (SURE, {"entropy_threshold": 0.242}, False),
        (SURE, {"top": 4}, False),  # .2877
        (SURE, {"top": 4, "entropy_threshold": 0.287}, True),
        (UNSURE, {"top": 1}, True),  # .3665
        (UNSURE, {"top": 1, "entropy_threshold": 0.367}, False),
        (UNSURE, {"top": 99, "entropy_threshold": 1.279}, True),  # 1.0496 + .2303
        (UNSURE, {"entropy_threshold": 1.05}, False),
        (FLAT, {}, False),
        (FLAT, {"entropy_threshold": 0.194}, True),
        (UNSURE, {"entropy_threshold": math.inf}, False),
    ],
)
def test_the_entropy_gate(chain_over: Chain, law: tuple[float, ...], options: dict[str, Any], passes: bool) -> None:
    tokens = [1, *[0] * 6]
    laws = [law, *[(0.9, *[0.1 / (len(law) - 1)] * (len(law) - 1))] * 7]
    acceptance = chain_over(tokens, laws, temperature=0).judged_by(Fly(**options))
    assert len(acceptance.path) == (7 if passes else 0)


@pytest.mark.parametrize("following", [0, 1, 3])
def test_the_window_is_an_option(chain_over: Chain, following: int) -> None:
    for spare in (0, 1):
        tokens = [1, *[0] * (following + spare)]
        step = chain_over(tokens, [UNSURE] * (len(tokens) + 1), temperature=0)
        assert len(step.judged_by(Fly(window_following=following)).path) == len(tokens) * spare


def test_fly_weighs_the_law_that_is_sampled_from(chain_over: Chain) -> None:
    tokens, rest = [1, *[0] * 6], [(1.0, 0.0, 0.0, 0.0)] * 7
    laws = [UNSURE, *rest]
    cold = chain_over(tokens, laws, temperature=0.1)  # .4^10 : .3^10 : .2^10 = .946 : .053 : .001, so .208
    assert cold.sampler.pick(-1) == 0 and cold.judged_by(Fly()).path == ()
    warm = chain_over(tokens, laws, temperature=0.5)  # .533 : .3 : .133, so .965
    assert len(warm.judged_by(Fly()).path) == 7
    cut = chain_over(tokens, laws, temperature=0.5, top_k=1)
    assert cut.judged_by(Fly()).path == ()


def test_fly_takes_the_longest_branch_then_that_of_fewer_mismatches(made: Any) -> None:
    fly = Fly(window_following=1)
    # Branches 1-0-0 and 0-0: the mismatch makes the longer one.
    tree = Draft([1, 0, 0, 0, 0], [-1, -1, 0, 1, 2])
    assert made(tree, [UNSURE] * 6, Generation()).judged_by(fly).path == (0, 2, 4)
    # Branches 1-0-0 and 0-0-0, the one with the mismatch first.
    tree = Draft([1, 0, 0, 0, 0, 0], [-1, -1, 0, 1, 2, 3])
    assert made(tree, [UNSURE] * 7, Generation()).judged_by(fly).path == (1, 3, 5)
    # The window is that of the node's own branch: at 1-0 there is no token to spare.
    tree = Draft([1, 0, 0, 0], [-1, 0, -1, 2])
    assert made(tree, [UNSURE] * 5, Generation()).judged_by(fly).path == (2, 3)


# AASD.


@pytest.mark.parametrize(
    ("law", "stand"),
    [
        (EVEN, {0, 1}),  # .3 - .1213 = .1787
        ((0.9, 0.1), {0}),  # H = .3251, .2675
        ((0.7, 0.3), {0, 1}),  # H = .6109, .2389
        ((0.25,) * 4, {0, 1, 2, 3}),  # ln 4 = 1.3863, .1614
        ((0.2, 0.11, 0.09, *[0.01] * 60), {0, 1}),  # H = 3.5439, so the floor
        ((1 / 32,) * 32, set(range(32))),  # max p is below the floor
        ((0.06, *[0.94 / 47] * 47), {0}),
        ((0.0, 1.0), {1}),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_aasd_tokens(chain_over: Chain, law: tuple[float, ...], stand: set[int], temperature: int) -> None:
    steps = {x: chain_over([x], [law, law], temperature=temperature) for x in range(len(law))}
    assert {x for x, step in steps.items() if step.judged_by(Aasd()).path == (0,)} == stand


def test_aasd_thresholds_are_options(chain_over: Chain) -> None:
    step = chain_over([2], [EVEN, EVEN])  # p = .125
    assert step.judged_by(Aasd(beta=0.24)).path == (0,)  # .24 - .1213 = .1187
    assert step.judged_by(Aasd(alpha=0.2)).path == (0,)  # .3 - .2426, so the floor
    assert step.judged_by(Aasd(alpha=0.2, floor=0.13)).path == ()
    port = Aasd(alpha=0.1, beta=0.1, floor=0.0)  # negative from one nat on
    assert chain_over([3], [(0.5, 0.3, 0.2 - TINY, TINY)] * 2).judged_by(port).path == (0,)  # H = 1.0297
    assert chain_over([3], [(0.8, 0.1, 0.1 - TINY, TINY)] * 2).judged_by(port).path == ()  # H = .6390, .0361


def test_aasd_takes_the_longest_branch_then_the_likeliest(made: Any) -> None:
    tree = Draft([0, 1, 0, 1], [-1, -1, 1, 1])
    assert made(tree, [EVEN] * 5).judged_by(Aasd()).path == (1, 2)


# No rule lets a token stand that is ruled out, however lax its options.

LAX = [Typical(epsilon=0, delta=0), Fly(entropy_threshold=0, window_following=0), Aasd(alpha=9, beta=0, floor=0)]


@pytest.mark.parametrize("verifier", LAX, ids=lambda verifier: type(verifier).__name__)
@pytest.mark.parametrize("temperature", [0, 1])
def test_ruled_out_tokens_never_stand(chain_over: Chain, verifier: Any, temperature: int) -> None:
    laws = [UNSURE] * 3
    if temperature or not isinstance(verifier, Typical):  # which is exact match at temperature 0
        assert 0 in chain_over([3, 0], laws, temperature=temperature).judged_by(verifier).path
    for ban in ({"bad_word_ids": [[3]]}, {"logit_bias": {3: -math.inf}}, {"bad_word_ids": [[0, 3]]}):
        banned = chain_over([3, 0], laws, temperature=temperature, **ban).judged_by(verifier)
        assert banned.path == ()
    for cut in ({"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.3}) if temperature else ():
        assert chain_over([3, 0], laws, **cut).judged_by(verifier).path == ()


@pytest.mark.parametrize("verifier", LAX, ids=lambda verifier: type(verifier).__name__)
def test_each_node_is_judged_after_its_own_prefix(chain_over: Chain, verifier: Any) -> None:
    laws = [(1 / 6,) * 6] * 5
    step = chain_over([1, 1, 2, 3], laws, no_repeat_ngram_size=1)  # the prompt allows 1, the first node forbids it
    assert step.judged_by(verifier).path == (0,)
    assert len(chain_over([1, 2, 3, 4], laws, no_repeat_ngram_size=1).judged_by(verifier).path) >= 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Typical(epsilon=1.0),
        lambda: Typical(epsilon=-0.1),
        lambda: Typical(delta=1.5),
        lambda: Fly(entropy_threshold=-1),
        lambda: Fly(entropy_threshold=math.nan),
        lambda: Fly(window_following=-1),
        lambda: Fly(top=0),
        lambda: Aasd(alpha=-1),
        lambda: Aasd(beta=2),
        lambda: Aasd(floor=-0.1),
    ],
)
def test_options_have_bounds(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        wrong()
