from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.backends.scripted import ScriptedTarget
from draftmux.costs import CONTEXT, ROWS, CostCurve, measure, measure_backend
from draftmux.testing.targets import hash_law, scripted, tiny_target

if TYPE_CHECKING:
    from draftmux.protocols import Opened

times = st.floats(1e-6, 1e3)
curves = st.dictionaries(st.integers(1, 300), times, min_size=1, max_size=9).map(
    lambda found: CostCurve(tuple(sorted(found)), tuple(found[rows] for rows in sorted(found)))
)


@given(curves)
def test_measured_sizes_are_given_back(curve: CostCurve) -> None:
    assert [curve.at(rows) for rows in curve.rows] == list(curve.seconds)


@given(curves, st.integers(1, 400))
def test_between_sizes_the_curve_is_straight_and_beyond_them_it_does_not_fall(curve: CostCurve, rows: int) -> None:
    found = curve.at(rows)
    assert math.isfinite(found) and found > 0
    below = [i for i, size in enumerate(curve.rows) if size <= rows]
    if not below:
        assert found == curve.seconds[0]
    elif below[-1] == len(curve.rows) - 1:
        assert found >= curve.seconds[-1]
        assert curve.at(rows + 1) >= found
    else:
        i = below[-1]
        share = (rows - curve.rows[i]) / (curve.rows[i + 1] - curve.rows[i])
        assert found == pytest.approx((1 - share) * curve.seconds[i] + share * curve.seconds[i + 1])


def test_a_curve_need_not_rise_and_goes_on_as_it_ended() -> None:
    curve = CostCurve((1, 2, 8, 16), (56e-3, 89e-3, 75e-3, 91e-3))
    assert curve.at(2) > curve.at(8)
    assert curve.at(12) == pytest.approx(83e-3)
    assert curve.at(24) == pytest.approx(107e-3)
    assert CostCurve((1, 2), (2.0, 1.0)).at(9) == 1.0  # what falls does not go below 0 for it
    assert CostCurve((4,), (2.0,)).at(1) == CostCurve((4,), (2.0,)).at(99) == 2.0


@pytest.mark.parametrize(
    ("rows", "seconds", "rule"),
    [
        ((), (), "one each"),
        ((1, 2), (1.0,), "one each"),
        ((0, 2), (1.0, 1.0), "positive and rise"),
        ((2, 2), (1.0, 1.0), "positive and rise"),
        ((4, 2), (1.0, 1.0), "positive and rise"),
        ((1,), (0.0,), "finite and positive"),
        ((1,), (-1.0,), "finite and positive"),
        ((1,), (math.nan,), "finite and positive"),
        ((1, 2), (1.0, math.inf), "finite and positive"),
    ],
)
def test_what_is_no_curve_is_refused(rows: Sequence[int], seconds: Sequence[float], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        CostCurve(rows, seconds)


def test_sizes_take_turns_the_first_pass_does_not_count_and_one_outlier_does_not_show() -> None:
    asked: list[int] = []
    ticks: list[tuple[int, int]] = []

    def time_pass(rows: int) -> float:
        asked.append(rows)
        turn = asked.count(rows) - 1
        return {0: 1000.0, 2: 500.0}.get(turn, float(rows))

    curve = measure(time_pass, (1, 4, 16), 3, lambda done, total: ticks.append((done, total)))
    assert curve == CostCurve((1, 4, 16), (1, 4, 16))
    assert asked == [1, 4, 16] * 4
    assert ticks == [(done, 12) for done in range(1, 13)]


@pytest.mark.parametrize(("limit", "last"), [(None, 208), (1000, 208), (209, 208), (208, 128), (40, 32), (2, 1)])
def test_sizes_and_context_stay_within_the_targets_length(
    limit: int | None, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = scripted(hash_law(seed=1, vocab_size=4), 4, max_length=limit)
    opened: list[int] = []
    inner = ScriptedTarget.open

    def watched(self: ScriptedTarget, tokens: Sequence[int]) -> Opened:
        opened.append(len(tokens))
        return inner(self, tokens)

    monkeypatch.setattr(ScriptedTarget, "open", watched)
    curve = measure_backend(target, repeats=1)
    assert curve.rows == tuple(rows for rows in ROWS if rows <= last)
    assert opened == [CONTEXT if limit in (None, 1000) else max(1, limit - last)]
    assert target.open_sequences == 0
    assert target.passes == 2 * len(curve.rows)


def test_a_failing_pass_leaves_no_sequence_open(monkeypatch: pytest.MonkeyPatch) -> None:
    target = scripted(hash_law(seed=1, vocab_size=4), 4)

    def fail(self: ScriptedTarget, rows: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ScriptedTarget, "score", fail)
    with pytest.raises(MemoryError):
        measure_backend(target)
    assert target.open_sequences == 0


def test_a_real_target_is_measured_with_other_sequences_open() -> None:
    target = tiny_target("llama", positions=64)
    before = target.open([1, 2, 3]).sequence
    curve = measure_backend(target, repeats=1)
    assert curve.rows == (1, 2, 4, 8, 16, 32)
    assert (before.row, before.length) == (0, 2)
    assert target.open([1, 2]).sequence.row == 1  # the measurement has left no sequence behind
