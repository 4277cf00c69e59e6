"""Budgets that follow cost and acceptance: the rule, by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.costs import CostCurve
from draftmux.engine import affordable
from draftmux.engine.affordable import MOST, NEAR, PROBE, Allowance, Pace, affordable_nodes, best_size, relative_costs
from draftmux.errors import DraftmuxError
from draftmux.routers.fixed import Fixed
from draftmux.types import AUTO, UNLIMITED, Acceptance, Budget, Choice, Draft, Step

CPU = CostCurve((1, 2, 4, 8, 16, 32, 64, 128, 201), (38, 37, 39, 43, 51, 64, 96, 156, 228))
CPU32 = CostCurve((1, 2, 4, 8, 16, 32, 64, 128, 201), (56, 89, 78, 75, 86, 116, 169, 284, 421))
FLAT = CostCurve((1, 208), (10, 11))
STEEP = CostCurve((1, 208), (1, 104))
HOPELESS = CostCurve((1, 208), (1, 208))  # a row more costs what a plain step does: no draft ever pays
CURVES = {"cpu": CPU, "cpu32": CPU32, "flat": FLAT, "steep": STEEP}
ROUTER = Fixed(drafter="d", budget=Budget(max_nodes=AUTO))
CHAINS = [Draft.chain([0] * length) for length in range(MOST + 1)]


def costs_of(curve: CostCurve) -> Any:
    return relative_costs(lambda nodes: curve.at(nodes + 1))


def step(draft: Draft, path: Sequence[int], drafter: str | None = "d") -> Step:
    return Step(Choice(drafter), drafter if len(draft) else None, draft, Acceptance(tuple(path), 0), (0,), {}, {})


@define
class Play:
    """A request by hand: the drafter fills its budget, and the first `run(t)` tokens of draft t are accepted."""

    pace: Pace
    run: Callable[[int], int]
    sizes: list[int] = field(factory=list)
    tokens: int = 0
    time: float = 0.0

    def go(self, steps: int, fixed: int | None = None) -> float:
        """Tokens per plain step's time; `fixed` ignores the rule."""
        for _ in range(steps):
            size = self.pace.nodes("d") if fixed is None else fixed
            accepted = min(self.run(len(self.sizes)), size)
            self.sizes.append(size)
            self.tokens += 1 + accepted
            self.time += float(self.pace.costs[size])
            self.pace.learn(step(CHAINS[size], range(accepted)))
        return self.tokens / self.time


# --- the rule


def brute(chances: Sequence[float], costs: Sequence[float], rate: float) -> int:
    gains = [sum(chances[:n]) - rate * costs[n] for n in range(len(costs))]
    return max(n for n, gain in enumerate(gains) if gain >= max(gains) - NEAR)


@settings(max_examples=150)
@given(st.data())
def test_the_best_size_is_the_best_of_all(data: Any) -> None:
    count = data.draw(st.integers(0, 12))
    share, time = st.floats(0, 1).map(lambda x: round(x, 2)), st.floats(0.05, 9).map(lambda x: round(x, 2))
    chances = data.draw(st.lists(share, min_size=count, max_size=count))
    costs = data.draw(st.lists(time, min_size=count + 1, max_size=count + 1))
    rate = data.draw(st.floats(0.1, 9))
    found = best_size(np.array(chances), np.array(costs), rate)
    gains = [sum(chances[:n]) - rate * costs[n] for n in range(count + 1)]
    if not any(abs(gain - max(gains) + NEAR) < 1e-9 for gain in gains):  # else rounding decides
        assert found == brute(chances, costs, rate)


def test_sums_over_steps_are_made_large_not_ratios_of_single_steps() -> None:
    """Half of the steps offer 2 tokens in 1 ms or 8 in 4.2, the others 1 in 1: 9/5.2 is more than 3/2."""
    chances = np.ones(7)
    costs = np.array([1, 1, 9, 9, 9, 9, 9, 4.2])
    assert best_size(chances, costs, 1.5) == 7
    ratios = [(1 + n) / costs[n] for n in range(8)]
    assert int(np.argmax(ratios)) == 1


def test_near_ties_go_to_the_larger_and_dear_sizes_are_passed_over() -> None:
    assert best_size(np.array([0.5, 0.0, 0.0]), np.array([1, 1, 1, 1.001]), 1.0) == 3
    assert best_size(np.array([0.5, 0.0, 0.0]), np.array([1, 1, 1, 1.5]), 1.0) == 2
    assert best_size(np.array([0.5] * 3), np.array([1, 1.6, 1.5, 1.3]), 1.0) == 3  # two rows cost more than four


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8, 0.95, 1.0])
def test_it_comes_close_to_the_best_fixed_size(curve: CostCurve, chance: float) -> None:
    runs = np.random.default_rng(3).geometric(max(1 - chance, 1e-4), 400) - 1
    fixed = [Play(Pace(costs_of(curve)), lambda t: int(runs[t])).go(400, n) for n in (0, 1, 2, 3, 5, 7, 11, 15, 31, 63)]
    play = Play(Pace(costs_of(curve)), lambda t: int(runs[t]))
    assert play.go(400) > 0.93 * max(fixed)


def test_it_follows_acceptance_within_a_request() -> None:
    play = Play(Pace(costs_of(CPU)), lambda t: 12 if t % 400 < 200 else 0)
    play.go(600)
    assert np.median(play.sizes[60:200]) == 12
    assert np.median(play.sizes[320:400]) <= 3
    assert np.median(play.sizes[500:600]) == 12  # and back again


def test_tree_nodes_count_by_their_place_in_the_draft() -> None:
    """The second branch is the right one: the budget must reach its end, whatever stands before it."""
    branches = Draft([1, 2, 3, 4, 5, 6], [-1, 0, 1, -1, 3, 4])
    pace = Pace(costs_of(CPU))
    for _ in range(50):
        pace.learn(step(branches, [3, 4, 5]) if pace.nodes("d") >= 6 else step(Draft.chain([1, 2, 3]), []))
    assert pace.nodes("d") >= 6
    chances = pace._seen["d"].chances()
    assert chances[:3].max() < 0.2
    assert chances[3:6].min() > 0.8


def test_a_branch_that_was_given_up_is_looked_at_again() -> None:
    branches = Draft([1, 2, 3, 4, 5, 6], [-1, 0, 1, -1, 3, 4])
    pace, sizes = Pace(costs_of(STEEP)), []
    for t in range(300):
        size = pace.nodes("d")
        sizes.append(size)
        right = t > 100 and size >= 6
        pace.learn(step(branches if size >= 6 else CHAINS[size], [3, 4, 5] if right else []))
    assert np.median(sizes[60:100]) == 0
    assert max(sizes[60:100]) > 0


def test_drafters_are_judged_apart() -> None:
    pace = Pace(costs_of(CPU))
    for _ in range(40):
        pace.nodes("good"), pace.nodes("bad")
        pace.learn(step(CHAINS[8], range(8), "good"))
        pace.learn(step(CHAINS[8], (), "bad"))
    assert pace.nodes("good") >= 8
    assert pace.nodes("bad") <= 3


# --- collapse and return


def check_it_comes_back() -> None:
    play = Play(Pace(costs_of(STEEP)), lambda t: 0 if t < 200 else 9)
    play.go(200)
    last = [size for size in play.sizes[100:] if size]
    assert play.sizes[100:].count(0) > 80, "it drafts on although nothing is accepted"
    assert 2 <= len(last) <= 8, "not now and then"
    play.go(3 * PROBE)
    assert np.median(play.sizes[-PROBE:]) >= 9, "it does not come back"


def test_after_a_collapse_it_probes_and_comes_back() -> None:
    check_it_comes_back()


def test_where_no_draft_can_pay_it_asks_for_one_node_now_and_then() -> None:
    play = Play(Pace(costs_of(HOPELESS)), lambda t: MOST)
    play.go(10 * PROBE)
    assert set(play.sizes) == {0, 1}
    assert 8 <= play.sizes.count(1) <= 10


def test_short_drafts_are_no_probes() -> None:
    play = Play(Pace(costs_of(CPU)), lambda t: 0)
    play.go(200)
    late = play.sizes[100:]
    assert 0 < np.median(late) <= 3
    assert 2 <= sum(size >= play.sizes[0] for size in late) <= 4


def test_a_probe_that_meets_no_draft_waits_for_one() -> None:
    pace = Pace(costs_of(HOPELESS))
    pace.nodes("d")
    for _ in range(PROBE + 5):
        pace.learn(step(Draft.empty(), ()))
    assert pace.nodes("d") == 1
    pace.learn(step(Draft.empty(), ()))
    assert pace.nodes("d") == 1
    pace.learn(step(CHAINS[1], ()))
    assert pace.nodes("d") == 0


def test_a_rule_that_never_probes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affordable, "PROBE", 1 << 30)
    monkeypatch.setattr(affordable, "MEMORY", 1 << 30)
    with pytest.raises(AssertionError):
        check_it_comes_back()


def test_asking_twice_changes_nothing() -> None:
    pace = Pace(costs_of(CPU))
    for t in range(100):
        sizes = {pace.nodes("d") for _ in range(3)}
        assert len(sizes) == 1
        pace.learn(step(CHAINS[min(8, *sizes)], range(min(t % 5, *sizes))))


# --- open budgets, numbers, and backends at fault


def test_open_budgets_are_what_half_a_plain_step_more_buys() -> None:
    assert affordable_nodes(lambda nodes: CPU.at(nodes + 1)) == 15
    assert affordable_nodes(lambda nodes: CPU32.at(nodes + 1)) == 7
    assert affordable_nodes(lambda nodes: FLAT.at(nodes + 1)) == 127
    assert affordable_nodes(lambda nodes: HOPELESS.at(nodes + 1)) == 3


class FakeSession:
    """What a budget asks of a session."""

    pace: Pace | None = None

    def budget(self, asked: Budget) -> Budget:
        return asked.within(Budget(max_depth=50))


def test_a_number_is_taken_as_it_is_and_costs_are_not_asked_for() -> None:
    def refuse(nodes: int) -> float:
        raise AssertionError("nobody follows the costs")

    session: Any = FakeSession()
    asked = Budget(max_nodes=9, max_branches=2)
    assert Allowance(refuse).budget(session, "d", asked) == evolve(asked, max_depth=50)
    assert session.pace is None


def test_open_and_auto_budgets_become_numbers_and_the_rest_stays() -> None:
    session: Any = FakeSession()
    allowance = Allowance(lambda nodes: CPU.at(nodes + 1))
    assert allowance.budget(session, "d", Budget(max_branches=2)) == Budget(15, 50, 2)
    assert session.pace is None
    found = allowance.budget(session, "d", Budget(max_nodes=AUTO, max_branches=2))
    assert 0 < found.max_nodes <= MOST < AUTO < UNLIMITED
    assert (found.max_depth, found.max_branches) == (50, 2)
    assert session.pace is not None


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_backend_that_measures_nonsense_is_named(wrong: float) -> None:
    with pytest.raises(DraftmuxError, match=r"over 7 nodes takes .*`max_nodes: auto`"):
        relative_costs(lambda nodes: wrong if nodes == 7 else 1.0)
