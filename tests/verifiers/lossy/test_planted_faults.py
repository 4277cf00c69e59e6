"""Faults of the lossy rules that look right, each with a property that notices."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attrs import evolve

from draftmux.generation import Generation
from draftmux.sampling import RuleContext, Sampler, SamplingRule
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.types import Acceptance, Context, Draft, Scores
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.lossy import aasd, fly, judging, typical

FAULTS = Faults()  # filled by the decorators below, before pytest reads it

EVEN = (0.5, 0.25, 0.125, 0.125)
UNSURE = (0.4, 0.3, 0.2, 0.1)
SURE = (0.94, 0.03, 0.02, 0.01)


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


def verdict(verifier: Any, draft: Draft | list[int], *laws: tuple[float, ...], **settings: Any) -> Acceptance:
    """What a verifier makes of a draft (a list is a chain) whose prompt is token 0; the last law is repeated."""
    draft = Draft.chain(draft) if isinstance(draft, list) else draft
    rows = [laws[min(row, len(laws) - 1)] for row in range(len(draft) + 1)]
    scores = Scores(torch.tensor([[math.log(p) for p in row] for row in rows], dtype=torch.float64))
    generation = Generation(**settings)
    context = Context("request", torch.zeros(1, dtype=torch.int64).numpy(), 1, 99, {}, (), generation)
    sampler = SamplingRule.build(generation, RuleContext(len(rows[0]), 1, frozenset())).at(context, draft, scores)
    return verifier.accept(context, draft, scores, sampler)  # type: ignore[no-any-return]


# The properties, on fixed inputs.


def typical_thresholds() -> None:
    skewed = (0.5, 0.25, 0.125, 0.075, 0.05)
    rule = typical.Typical()
    assert [bool(verdict(rule, [x], skewed, temperature=1).path) for x in range(5)] == [True] * 3 + [False] * 2
    assert verdict(rule, [1], (0.88, 0.1, 0.02), temperature=1).path == (0,)
    assert verdict(rule, [2], EVEN, temperature=1).path == (0,)
    assert verdict(rule, [1], EVEN, temperature=0.3).path == ()  # .5^(10/3) : .25^(10/3) is 10 : 1, and .09 of it
    assert verdict(rule, [1], EVEN, temperature=0).path == ()


def longest_and_likeliest_branch() -> None:
    for rule in (typical.Typical(), aasd.Aasd()):
        assert verdict(rule, Draft([0, 1, 0], [-1, -1, 1]), EVEN, temperature=1).path == (1, 2)
        assert verdict(rule, Draft([1, 0], [-1, -1]), EVEN, temperature=1).path == (1,)
        assert verdict(rule, Draft([1, 0, 0, 1], [-1, -1, 0, 1]), EVEN, EVEN, EVEN, EVEN, temperature=1).path == (0, 2)
        assert verdict(rule, Draft([3, 0], [-1, 0]), SURE, EVEN, temperature=1).path == ()


def windows_of_fly() -> None:
    rule = fly.Fly()
    for length, accepted in ((6, 0), (7, 7), (8, 8)):
        tokens = [1, *[0] * (length - 1)]
        assert len(verdict(rule, tokens, UNSURE).path) == accepted
    assert len(verdict(rule, [1, 0, 0, 0, 0, 0, 1], UNSURE).path) == 6
    assert len(verdict(rule, [1, 0, 0, 0, 0, 1, 0, 0], UNSURE).path) == 0
    assert len(verdict(rule, [1, 1, 0, 0, 0, 0, 0, 0], UNSURE).path) == 0


def fly_without_its_window_is_exact_match() -> None:
    for seed in range(20):
        for tokens in ([0, 1, 0], [1, 0, 0], [2, 2, 1]):
            settings = {"temperature": 1.0, "seed": seed}
            found, exact = (verdict(rule, tokens, UNSURE, **settings) for rule in (fly.Fly(), ExactMatch()))
            assert found == exact


def entropy_gate_of_fly() -> None:
    tokens = [1, *[0] * 6]
    flat = (0.04, *[0.96 / 63] * 63)  # over three likeliest .2562; over all and over three renormalised above 1
    assert verdict(fly.Fly(), tokens, UNSURE, temperature=0).path
    assert not verdict(fly.Fly(), tokens, SURE, UNSURE).path
    assert not verdict(fly.Fly(), tokens, flat, flat).path


def thresholds_of_aasd() -> None:
    for temperature in (0, 1):
        stand = [bool(verdict(aasd.Aasd(), [x], EVEN, temperature=temperature).path) for x in range(4)]
        assert stand == [True, True, False, False]
        wide = (0.2, 0.11, 0.09, *[0.01] * 60)
        assert verdict(aasd.Aasd(), [2], wide, temperature=temperature).path == ()
        assert verdict(aasd.Aasd(), [1], wide, temperature=temperature).path == (0,)
        assert verdict(aasd.Aasd(), [5], (1 / 32,) * 32, temperature=temperature).path == (0,)


def bans_hold_after_every_node() -> None:
    lax = fly.Fly(entropy_threshold=0, window_following=0)
    rules = (typical.Typical(epsilon=0), lax, aasd.Aasd(alpha=9, beta=0, floor=0))
    for rule in rules:
        for temperature in (0.0, 1.0)[isinstance(rule, typical.Typical) :]:
            settings = {"temperature": temperature, "no_repeat_ngram_size": 1}
            assert verdict(rule, [1, 1, 2, 3], (1 / 6,) * 6, **settings).path == (0,)
            banned = {"temperature": temperature, "bad_word_ids": [[1, 2]]}
            assert verdict(rule, [1, 2, 3, 3], (1 / 6,) * 6, **banned).path == (0,)


def the_next_token_follows_the_path() -> None:
    only = [tuple(1 - 3e-9 if x == place else 1e-9 for x in range(4)) for place in range(4)]
    for rule in (typical.Typical(), fly.Fly(), aasd.Aasd()):
        acceptance = verdict(rule, [1, 2], only[1], only[2], only[3])
        assert (acceptance.path, acceptance.token) == ((0, 1), 3)
        acceptance = verdict(rule, [1, 3], only[1], only[2], only[0])
        assert (acceptance.path, acceptance.token) == ((0,), 2)


# Typical acceptance.


@FAULTS.breaks(typical_thresholds)
def the_two_defaults_are_swapped(patch: Any) -> None:
    patch.setattr(typical.Typical.__init__, "__kwdefaults__", {"epsilon": 0.3, "delta": 0.09})


@FAULTS.breaks(typical_thresholds)
def the_larger_threshold_counts(patch: Any) -> None:
    def stands(self: Any, law: Any, chances: Any) -> Any:
        return chances > ((law * (law + 1e-5).log()).sum().exp() * self.delta).clamp_min(self.epsilon)

    patch.setattr(typical.Typical, "_stands", stands)


@FAULTS.breaks(typical_thresholds)
def the_entropy_is_in_bits(patch: Any) -> None:
    def stands(self: Any, law: Any, chances: Any) -> Any:
        return chances > ((law * law.log2()).sum().exp() * self.delta).clamp_max(self.epsilon)

    patch.setattr(typical.Typical, "_stands", stands)


@FAULTS.breaks(typical_thresholds)
def typical_tokens_are_weighed_at_temperature_1(patch: Any) -> None:
    patch.setattr(Sampler, "p", lambda self, node: self.scores.logits[node + 1].softmax(-1))


# Branches.


@FAULTS.breaks(longest_and_likeliest_branch)
def only_the_first_node_is_tried(patch: Any) -> None:
    patch.setattr(typical, "longest", lambda draft, *rule: judging.longest(Draft.chain(draft.tokens[:1]), *rule))


@FAULTS.breaks(longest_and_likeliest_branch)
def of_equally_long_branches_the_first_is_taken(patch: Any) -> None:
    patch.setattr(judging.math, "log", lambda p: 0.0)


@FAULTS.breaks(longest_and_likeliest_branch)
def the_likeliest_branch_is_taken_however_short(patch: Any) -> None:
    patch.setattr(judging, "max", lambda reached, key: max(reached, key=lambda node: key(node)[1]), raising=False)


@FAULTS.breaks(longest_and_likeliest_branch)
def a_branch_goes_on_after_a_refused_token(patch: Any) -> None:
    def loose(draft: Any, law_after: Any, stands: Any) -> Any:
        good = [
            node
            for node, parent in enumerate(draft.parents.tolist())
            if bool(stands(law_after(parent), law_after(parent)[[int(draft.tokens[node])]])[0])
        ]
        return tuple(draft.path_to(max(good, key=lambda node: draft.depths[node]))) if good else ()

    patch.setattr(typical, "longest", loose)


# FLy.


@FAULTS.breaks(windows_of_fly)
def a_mismatch_in_the_last_window_passes(patch: Any) -> None:
    def confirmed(self: Any, after: Any, matches: Any) -> bool:
        return len(after) >= self.window_following and all(map(matches, after[: self.window_following]))

    patch.setattr(fly.Fly, "_confirmed", confirmed)


@FAULTS.breaks(windows_of_fly)
def a_mismatch_with_too_few_tokens_after_it_passes(patch: Any) -> None:
    patch.setattr(fly.Fly, "_confirmed", lambda self, after, matches: all(map(matches, after[:5])))


@FAULTS.breaks(windows_of_fly)
def the_window_is_one_longer(patch: Any) -> None:
    def confirmed(self: Any, after: Any, matches: Any) -> bool:
        return len(after) > self.window_following and all(map(matches, after[: self.window_following + 1]))

    patch.setattr(fly.Fly, "_confirmed", confirmed)


@FAULTS.breaks(windows_of_fly)
def the_window_is_one_shorter(patch: Any) -> None:
    def confirmed(self: Any, after: Any, matches: Any) -> bool:
        return len(after) > self.window_following and all(map(matches, after[: self.window_following - 1]))

    patch.setattr(fly.Fly, "_confirmed", confirmed)


@FAULTS.breaks(windows_of_fly)
def the_window_counts_the_mismatch(patch: Any) -> None:
    patch.setattr(fly.Fly.__init__, "__kwdefaults__", {"entropy_threshold": 0.3, "window_following": 6, "top": 3})


@FAULTS.breaks(fly_without_its_window_is_exact_match)
def fly_matches_the_likeliest_token_when_sampling(patch: Any) -> None:
    patch.setattr(fly, "cache", lambda pick: lambda node: int(pick.__self__.p(node).argmax()))


@FAULTS.breaks(entropy_gate_of_fly)
def the_entropy_is_of_the_whole_law(patch: Any) -> None:
    patch.setattr(fly.Fly.__init__, "__kwdefaults__", {"entropy_threshold": 0.3, "window_following": 5, "top": 999})


@FAULTS.breaks(entropy_gate_of_fly)
def the_likeliest_tokens_are_renormalised(patch: Any) -> None:
    patch.setattr(fly, "entropy", lambda law: judging.entropy(law / law.sum()))


@FAULTS.breaks(entropy_gate_of_fly)
def the_entropy_is_of_the_greedy_choice(patch: Any) -> None:
    patch.setattr(fly, "open_law", lambda node, sampler: sampler.p(node))


@FAULTS.breaks(entropy_gate_of_fly)
def the_entropy_is_of_the_law_after_the_mismatch(patch: Any) -> None:
    def unsure(self: Any, node: int, draft: Any, sampler: Any) -> bool:
        return original(self, node, evolve(draft, parents=range(-1, len(draft) - 1)), sampler) or bool(
            judging.entropy(judging.open_law(node, sampler).topk(3).values) >= self.entropy_threshold
        )

    original = fly.Fly._unsure
    patch.setattr(fly.Fly, "_unsure", unsure)


# AASD.


@FAULTS.breaks(thresholds_of_aasd)
def the_threshold_has_no_floor(patch: Any) -> None:
    patch.setattr(aasd.Aasd.__init__, "__kwdefaults__", {"alpha": 0.1, "beta": 0.3, "floor": 0.0})


@FAULTS.breaks(thresholds_of_aasd)
def the_threshold_can_exceed_every_token(patch: Any) -> None:
    def stands(self: Any, law: Any, chances: Any) -> Any:
        return chances >= (self.beta - self.alpha * judging.entropy(law)).clamp_min(self.floor)

    patch.setattr(aasd.Aasd, "_stands", stands)


@FAULTS.breaks(thresholds_of_aasd)
def unsure_targets_ask_for_more(patch: Any) -> None:
    patch.setattr(aasd, "entropy", lambda law: -judging.entropy(law))


@FAULTS.breaks(thresholds_of_aasd)
def aasd_weighs_the_greedy_choice(patch: Any) -> None:
    patch.setattr(aasd, "open_law", lambda node, sampler: sampler.p(node))


# Processors, and the token after the path.


@FAULTS.breaks(bans_hold_after_every_node)
def every_node_is_processed_with_the_roots_prefix(patch: Any) -> None:
    patch.setattr(Sampler, "_prefix", lambda self, node: torch.from_numpy(self.context.tokens.copy())[None])


@FAULTS.breaks(bans_hold_after_every_node)
def aasd_weighs_raw_logits(patch: Any) -> None:
    patch.setattr(aasd, "open_law", lambda node, sampler: sampler.scores.logits[node + 1].softmax(-1))


@FAULTS.breaks(bans_hold_after_every_node)
def fly_weighs_raw_logits(patch: Any) -> None:
    patch.setattr(fly, "open_law", lambda node, sampler: sampler.scores.logits[node + 1].softmax(-1))


@FAULTS.breaks(bans_hold_after_every_node)
def fly_lets_ruled_out_tokens_pass(patch: Any) -> None:
    patch.setattr(fly.Fly, "_unsure", lambda self, node, draft, sampler: True)


@FAULTS.breaks(the_next_token_follows_the_path)
def the_next_token_is_that_of_the_root(patch: Any) -> None:
    pick = Sampler.pick
    patch.setattr(Sampler, "pick", lambda self, node: pick(self, -1))
