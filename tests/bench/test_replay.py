"""Routers played along a recording do what they do in real decoding, step by step; the oracle is never slower."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.bench.replay import Replay, oracle, record
from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routers.bandit.router import Arm, Bandit
from draftmux.routers.cascade import Cascade
from draftmux.routers.cost_aware.router import CostAware
from draftmux.routers.fixed import Fixed
from draftmux.routers.match_length import MatchLength
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Corrupt, Oracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Draft

SIZE = 5
ROUTERS = {
    "fixed": Fixed(drafter="copy", budget=Budget(9, 6, 2)),
    "cascade": Cascade(order=["copy", "half"], budget=Budget(12)),
    "gate": MatchLength(copy="copy", otherwise="good", min_match=3, budget=Budget(8), otherwise_budget=Budget(3, 2)),
    "bandit": Bandit(
        arms=[Arm(drafter="copy"), Arm(drafter="half"), Arm()], policy="full-information", reward="length"
    ),
    "cost-aware": CostAware(drafters=["copy", "half"], budget=Budget(12, 6, 2), matches=[1, 2]),
}


def parts(target: Any, truths: Any, router: Any) -> Any:
    drafters = {
        "copy": ContextCopy(min_match=1, max_branches=1, max_depth=6),  # of more, others come in where depth is cut
        "good": Oracle(truths, 5),
        "half": Corrupt(truths, SIZE, 5, 2),
    }
    return assemble(target, drafters, router)


@pytest.mark.parametrize("name", ROUTERS)
@settings(max_examples=5, deadline=None)
@given(seed=some.SEEDS)
def test_a_replay_is_the_real_thing(name: str, seed: int) -> None:
    target = scripted(hash_law(seed, SIZE), SIZE)
    target.costs = {nodes: 100.0 + 10.0 * nodes for nodes in range(300)}
    ask = Ask((1, 2, 1), Generation(max_new_tokens=40, ignore_eos=True), "replay")
    truths = Trial.prepare(target, [ask]).truths
    router = ROUTERS[name].bind(Resources(backend=target))
    used = parts(target, truths, router)
    real = serve(used, [ask])["replay"].finished
    recording = record(used, None, ask.tokens, ask.generation, Budget(40))
    assert recording.tokens == real.tokens
    fresh = ROUTERS[name].bind(Resources(backend=target))
    played = Replay(fresh, recording, target.cost, ask.generation).run()
    for what in ("steps", "drafted", "accepted", "asked_by_drafter"):
        assert getattr(played.metrics, what) == getattr(real.metrics, what), what
    assert +played.metrics.steps_by_drafter == +real.metrics.steps_by_drafter
    best, steps = oracle(recording, target.cost, ["copy", "good", "half"])
    assert best <= played.seconds + 1e-9 and 0 < steps.total() <= 40


@pytest.mark.parametrize("name", ROUTERS)
@settings(max_examples=5, deadline=None)
@given(seed=some.SEEDS)
def test_a_replay_does_not_know_where_the_text_ends(name: str, seed: int) -> None:
    """The target ends before the limit; drafts near the end are as long as they would have been."""
    target = scripted(hash_law(seed, SIZE), SIZE, eos_ids=(0,))
    target.costs = {nodes: 100.0 + 10.0 * nodes for nodes in range(300)}
    ask = Ask((1, 2, 1), Generation(max_new_tokens=40, min_new_tokens=12), "replay")
    used = parts(target, Trial.prepare(target, [ask]).truths, ROUTERS[name].bind(Resources(backend=target)))
    real = serve(used, [ask])["replay"].finished
    recording = record(used, None, ask.tokens, ask.generation, Budget(40))
    fresh = ROUTERS[name].bind(Resources(backend=target))
    played = Replay(fresh, recording, target.cost, ask.generation).run()
    for what in ("steps", "drafted", "asked_by_drafter"):
        assert getattr(played.metrics, what) == getattr(real.metrics, what), what


@given(length=st.integers(1, 12))
def test_an_oracle_by_hand(length: int) -> None:
    """A drafter that is always right by three tokens for a tenth of a pass: every step takes four tokens, at most."""
    target = scripted(hash_law(3, SIZE), SIZE)
    ask = Ask((1, 2), Generation(max_new_tokens=length, ignore_eos=True), "one")
    truths = Trial.prepare(target, [ask]).truths
    recording = record(assemble(target, {"good": Oracle(truths, 3)}), None, ask.tokens, ask.generation, Budget(9))
    recording = evolve(recording, seconds={"good": 0.1})
    seconds, steps = oracle(recording, lambda nodes: 1.0, ["good"])
    passes = -(-length // 4)
    assert steps.total() == passes and passes <= seconds <= 1.1 * passes
    assert isinstance(recording.drafts[0]["good"], Draft)
