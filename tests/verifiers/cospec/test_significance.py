"""Paired tests on tables that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from draftmux.verifiers.cospec.significance import discordant, mcnemar, paired_interval


def test_mcnemar_by_hand() -> None:
    one = [True] * 9 + [False] * 1 + [True] * 20 + [False] * 5
    two = [False] * 9 + [True] * 1 + [True] * 20 + [False] * 5
    assert discordant(one, two) == (9, 1)
    assert mcnemar(one, two) == pytest.approx(2 * (1 + 10) / 2**10)
    assert mcnemar(one, one) == 1.0


def test_the_interval_resamples_problems_in_pairs() -> None:
    """Two systems that are almost always right or wrong together differ by little, and surely."""
    rng = np.random.default_rng(0)
    base = rng.random(2000) < 0.5
    better = base | (rng.random(2000) < 0.02)
    low, high = paired_interval(better, base)
    assert 0 < low < (better.mean() - base.mean()) < high < 0.03
    unpaired = paired_interval(better, rng.permutation(base))
    assert unpaired[1] - unpaired[0] > 3 * (high - low)
