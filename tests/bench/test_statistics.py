from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.bench.statistics import LEVEL, Totals, quantile, share, speedup, speedup_interval


def totals(tokens: list[float], seconds: list[float]) -> Totals:
    return Totals(np.array(tokens, dtype=float), np.array(seconds, dtype=float))


def test_speedup_is_the_ratio_of_total_rates() -> None:
    ours, plain = totals([30, 10], [1, 1]), totals([10, 10], [1, 3])
    assert ours.rate == 20
    assert plain.rate == 5
    assert speedup(ours, plain) == 4
    assert ours.rates.tolist() == [30, 10]


def test_two_units_have_three_resamples_so_the_interval_is_known() -> None:
    # Drawing the same unit twice happens half of the time, a quarter each: beyond both ends of a 95 % interval.
    ours, plain = totals([10, 30], [1, 1]), totals([10, 10], [1, 1])
    assert speedup(ours, plain) == 2
    assert speedup_interval(ours, plain) == pytest.approx((1, 3))


def test_units_are_resampled_in_pairs() -> None:
    """Prompts differ a thousandfold in speed; the ratio does not, and pairing must see that."""
    seconds = [10.0**k for k in range(-1, 3)]
    ours, plain = totals([100] * 4, [s / 2 for s in seconds]), totals([100] * 4, seconds)
    assert speedup_interval(ours, plain) == pytest.approx((2, 2))


def test_interval_agrees_with_the_normal_one_for_many_units() -> None:
    rng = np.random.default_rng(1)
    seconds = rng.uniform(0.8, 1.2, 400)
    ours, plain = totals([100] * 400, list(seconds)), totals([100] * 400, [2.0] * 400)
    interval = speedup_interval(ours, plain)
    assert interval is not None
    mean, error = seconds.mean(), seconds.std(ddof=1) / 20
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * error
    assert interval == pytest.approx((2 / (mean + reach), 2 / (mean - reach)), rel=1e-3)


def test_the_seed_decides() -> None:
    rng = np.random.default_rng(0)
    ours, plain = (totals([100] * 12, list(rng.uniform(1, 3, 12))) for _ in range(2))
    assert speedup_interval(ours, plain, 7) == speedup_interval(ours, plain, 7)
    assert len({speedup_interval(ours, plain, seed) for seed in range(8)}) == 8


@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 9), st.floats(0.01, 9)), min_size=2, max_size=8),
    st.sampled_from([0.25, 2.0, 8.0]),
)
def test_faster_clocks_scale_the_interval(rows: list[tuple[int, float, float]], factor: float) -> None:
    tokens, ours, plain = ([float(row[i]) for row in rows] for i in range(3))
    one = speedup_interval(totals(tokens, ours), totals(tokens, plain))
    two = speedup_interval(totals(tokens, [s / factor for s in ours]), totals(tokens, plain))
    assert one is not None
    assert two is not None
    assert two == pytest.approx((one[0] * factor, one[1] * factor))
    ratios = [b / a for a, b in zip(ours, plain, strict=True)]
    assert min(ratios) * (1 - 1e-9) <= one[0] <= one[1] <= max(ratios) * (1 + 1e-9)


def test_what_cannot_be_known_is_none() -> None:
    nothing, something = totals([0, 0], [1, 1]), totals([5, 5], [1, 1])
    assert speedup_interval(totals([5], [1]), totals([5], [1])) is None
    assert speedup_interval(totals([], []), totals([], [])) is None
    assert speedup(something, nothing) is None
    assert speedup_interval(something, nothing) is None
    assert speedup(nothing, something) == 0
    assert speedup_interval(nothing, something) == (0, 0)
    assert totals([0], [0]).rate == 0
    assert totals([], []).rate == 0
    assert share(1, 0) is None
    assert share(1, 4) == 0.25
    assert quantile([], 0.5) is None
    assert quantile([1, 2, 9], 0.5) == 2
