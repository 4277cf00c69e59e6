"""Budgets that follow cost and acceptance: what they may know in real requests, and that no text changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.backends.scripted import ScriptedTarget
from draftmux.config.load import parse_pipeline
from draftmux.costs import CostCurve
from draftmux.drafting import SequenceDrafter
from draftmux.engine import affordable
from draftmux.engine.affordable import MOST, Pace, relative_costs
from draftmux.generation import Generation
from draftmux.pipeline import Pipeline
from draftmux.routers.fixed import Fixed
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Corrupt, Oracle, RandomTree, TreeOracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, script_law, scripted
from draftmux.types import AUTO, Budget, Context, Draft

CPU = CostCurve((1, 2, 4, 8, 16, 32, 64, 128, 201), (38, 37, 39, 43, 51, 64, 96, 156, 228))
CPU32 = CostCurve((1, 2, 4, 8, 16, 32, 64, 128, 201), (56, 89, 78, 75, 86, 116, 169, 284, 421))
FLAT = CostCurve((1, 208), (10, 11))
STEEP = CostCurve((1, 208), (1, 104))
CURVES = {"cpu": CPU, "cpu32": CPU32, "flat": FLAT, "steep": STEEP}
ROUTER = Fixed(drafter="d", budget=Budget(max_nodes=AUTO))


def costs_of(curve: CostCurve) -> Any:
    return relative_costs(lambda nodes: curve.at(nodes + 1))


@frozen
class Noted(SequenceDrafter):
    """Another drafter, with a note of every budget by request and position."""

    inner: SequenceDrafter
    notes: dict[tuple[str, int], int]

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        self.notes[context.request_id, len(context.tokens)] = budget.max_nodes
        return self.inner.propose_one(context, state, budget)


def sloped(target: Any, curve: CostCurve = CPU) -> Any:
    target.costs = {nodes: curve.at(nodes + 1) for nodes in range(MOST + 1)}
    return target


def budgets(
    scripts: Sequence[Sequence[int]], names: Sequence[str], max_batch: int = 1, truth: Sequence[int] = ()
) -> dict[tuple[str, int], int]:
    """Budgets that requests with these texts get, all drafted from `truth`; each begins with a token of its own."""

    def law(prefix: tuple[int, ...]) -> Sequence[float]:
        script = next(s for s in scripts if s[0] == prefix[0])
        return script_law(script, 8, 0)(prefix)

    notes: dict[tuple[str, int], int] = {}
    target = sloped(scripted(law, 8))
    drafter = Noted(Oracle([[s[0], *truth] if truth else s for s in scripts], k=MOST), notes)
    asks = [
        Ask(tuple(s[:1]), Generation(max_new_tokens=len(s) + 20), name) for s, name in zip(scripts, names, strict=True)
    ]
    for outcome in serve(assemble(target, {"d": drafter}, ROUTER), asks, max_batch).values():
        assert not outcome.finished.metrics.faults
    return notes


def text(seed: int, first: int, length: int = 120) -> list[int]:
    return [first, *np.random.default_rng(seed).integers(0, 4, length).tolist()]


@settings(max_examples=30)
@given(seed=st.integers(0, 99), shared=st.integers(0, 100))
def test_a_budget_depends_on_the_past_alone(seed: int, shared: int) -> None:
    """Two texts that part at some point get the same budgets up to there, though one is drafted right and one wrong."""
    one = text(seed, 5)
    other = [*one[: 1 + shared], *((token + 1) % 4 for token in one[1 + shared :])]
    first, second = (budgets([script], ["r"], truth=one[1:]) for script in (one, other))
    parted = 1 + shared
    same = {place: size for place, size in first.items() if place[1] <= parted}
    assert same == {place: size for place, size in second.items() if place[1] <= parted}
    assert ("r", 1) in same


def check_requests_are_apart(max_batch: int = 3) -> None:
    scripts = [text(1, 5), text(2, 6), text(3, 7, 300)]
    names = ["a", "b", "c"]
    together = budgets(scripts, names, max_batch)
    for script, name in zip(scripts, names, strict=True):
        alone = budgets([script], [name])
        assert alone == {place: size for place, size in together.items() if place[0] == name}


@pytest.mark.parametrize("max_batch", [1, 2, 3])
def test_requests_learn_nothing_from_each_other(max_batch: int) -> None:
    check_requests_are_apart(max_batch)


def test_state_that_leaks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Pace(costs_of(CPU))
    monkeypatch.setattr(affordable, "Pace", lambda costs: shared)
    with pytest.raises(AssertionError):
        check_requests_are_apart()


def test_no_clock_has_a_say(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = [text(4, 5), text(5, 6)]
    first = budgets(scripts, ["a", "b"], 2)
    ticks = iter(np.cumsum(np.random.default_rng(0).exponential(5, 1_000_000)).tolist())
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    assert budgets(scripts, ["a", "b"], 2) == first


@settings(max_examples=60)
@given(data=st.data(), count=st.integers(1, 4), max_batch=st.integers(1, 3), curve=st.sampled_from([*CURVES.values()]))
def test_texts_are_plain_decodings_own(data: Any, count: int, max_batch: int, curve: CostCurve) -> None:
    target = sloped(data.draw(some.hash_targets()), curve)
    trial = Trial.prepare(target, data.draw(some.asks(target, count)))
    size = target.vocab_size
    kinds: list[Callable[[Any], SequenceDrafter]] = [
        lambda truths: Oracle(truths, k=MOST),
        lambda truths: Corrupt(truths, size, k=9, at=2),
        lambda truths: TreeOracle(truths, size, k=5, distractors=9),
        lambda truths: RandomTree(size, 12),
    ]
    kind = data.draw(st.sampled_from(kinds))
    trial.check(lambda truths: {"d": kind(truths)}, ROUTER, max_batch)


def test_the_engine_hands_out_what_the_rule_says_and_a_drafter_with_no_nodes_is_not_asked() -> None:
    notes: dict[tuple[str, int], int] = {}
    target = sloped(scripted(hash_law(seed=2, vocab_size=6), 6), STEEP)
    trial = Trial.prepare(target, [Ask((1, 2), Generation(max_new_tokens=150))])
    outcomes = trial.check(lambda truths: {"d": Noted(Corrupt(truths, 6, k=9, at=0), notes)}, ROUTER)
    metrics = outcomes["request"].finished.metrics
    assert all(size > 0 for size in notes.values())
    assert metrics.asked_by_drafter["d"] == len(notes) == metrics.steps_by_drafter["d"] < 20


@pytest.mark.parametrize(
    ("router", "asked"),
    [
        ("{use: fixed, drafter: a}", True),
        ("{use: fixed, drafter: a, budget: {max_depth: 3}}", True),
        ("{use: fixed, drafter: a, budget: {max_nodes: auto}}", True),
        ("{use: fixed, drafter: a, budget: {max_nodes: 4}}", False),
        ("{use: fixed}", False),
        ("{use: match-length, copy: a, otherwise: b, budget: {max_nodes: 4}}", False),
        (
            "{use: match-length, copy: a, otherwise: a, budget: {max_nodes: 4}, otherwise_budget: {max_nodes: auto}}",
            True,
        ),
    ],
)
def test_costs_are_measured_when_the_pipeline_is_loaded(
    router: str, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes: list[int] = []
    monkeypatch.setattr(ScriptedTarget, "cost", lambda self, count: (nodes.append(count), 1.0)[1])
    backend = "backend: {use: scripted, table: {0: [0, 1], 1: [1, 0]}}"
    drafters = "drafters: {a: {use: pld}, b: {use: pld}}"
    Pipeline.build(parse_pipeline(f"{backend}\n{drafters}\nrouter: {router}\n", "p.yaml"))
    assert bool(nodes) is asked
