"""Whether two systems differ on the same problems: exact McNemar test, bootstrap that resamples problems in pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mcnemar(one: Sequence[bool], two: Sequence[bool]) -> float:
    """Two-sided exact p-value that both solve as many, from the problems that only one of them solves."""
    from scipy.stats import binomtest

    only_one, only_two = discordant(one, two)
    return 1.0 if not only_one + only_two else float(binomtest(only_one, only_one + only_two).pvalue)


def discordant(one: Sequence[bool], two: Sequence[bool]) -> tuple[int, int]:
    """Problems that only the first solves, and that only the second does."""
    first, second = np.asarray(one, dtype=bool), np.asarray(two, dtype=bool)
    return int((first & ~second).sum()), int((second & ~first).sum())


def paired_interval(
    one: Sequence[float], two: Sequence[float], samples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of `one - two`."""
    gains = np.asarray(one, dtype=np.float64) - np.asarray(two, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = [gains[rng.integers(0, len(gains), len(gains))].mean() for _ in range(samples)]
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)
