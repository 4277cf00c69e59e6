"""Rates, ratios of rates on paired units, and bootstrap intervals. Plain numbers in, plain numbers out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DRAWS = 10_000
LEVEL = 0.95


@frozen(eq=False)
class Totals:
    """Tokens and seconds of one contender, one number a unit: `(U,)` each."""

    tokens: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @property
    def rate(self) -> float:
        """Tokens a second over all units; 0 when no time passed."""
        return float(_ratio(self.tokens.sum(), self.seconds.sum(), empty=0.0))

    @property
    def rates(self) -> NDArray[np.float64]:
        """Tokens a second of each unit, `(U,)`."""
        return _ratio(self.tokens, self.seconds, empty=0.0)


def speedup(ours: Totals, plain: Totals) -> float | None:
    """Ratio of tokens/s to plain's; None when plain generated nothing."""
    return ours.rate / plain.rate if plain.rate else None


def speedup_interval(ours: Totals, plain: Totals, seed: int = 0) -> tuple[float, float] | None:
    """Percentile bootstrap interval of `speedup` at 95 %, resampling units in pairs; None with fewer than two units."""
    count = len(plain.tokens)
    if count < 2:
        return None
    # How often each unit is drawn, (draws, U): the same units for both sides, which is what pairing means.
    drawn = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=DRAWS)
    ratios = _ratio(_rates(drawn, ours), _rates(drawn, plain), empty=np.nan)
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return None
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which a share of `values` lies; None without values."""
    return float(np.quantile(values, share)) if len(values) else None


def share(part: float, whole: float) -> float | None:
    """`part / whole`; None when there is no whole."""
    return part / whole if whole and math.isfinite(whole) else None


def _rates(drawn: NDArray[np.int64], totals: Totals) -> NDArray[np.float64]:
    return _ratio(drawn @ totals.tokens, drawn @ totals.seconds, empty=np.nan)


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64], empty: float) -> NDArray[np.float64]:
    result: NDArray[np.float64] = np.full(np.shape(below), empty)
    np.divide(above, below, out=result, where=np.asarray(below) > 0)
    return result
