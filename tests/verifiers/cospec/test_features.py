"""What an arbiter reads beside its states, from laws written out by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from draftmux.verifiers.cospec.features import LOWEST, features

LAW = [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]  # the last comes after the draft


def block(confidence: Any, drafted: tuple[int, ...] = (1, 0), law: Any = LAW) -> Any:
    request = SimpleNamespace(
        scores=SimpleNamespace(logits=torch.tensor(law).log() + 3), draft=SimpleNamespace(confidence=confidence)
    )
    return SimpleNamespace(request=request, drafted=drafted, verified=(0, 2))


def test_all_numbers_by_hand() -> None:
    found = features(block(np.array([0.5, 0.25])))
    spread = [-sum(p * math.log(p) for p in row) for row in LAW[:2]]
    first = [math.log(0.25), math.log(0.5), spread[0], math.log(2), math.log(0.5)]  # one token is likelier
    second = [math.log(0.1), math.log(0.7), spread[1], math.log(3), math.log(0.25)]
    assert found.dtype == torch.float32 and found.tolist() == [pytest.approx(first), pytest.approx(second)]


def test_a_drafter_that_says_nothing_counts_as_sure_and_what_cannot_be_is_bounded() -> None:
    found = features(block(None, (1, 1), [[1.0, 0.0, 0.0], [0.1, 0.2, 0.7], LAW[2]]))
    assert found[:, 4].tolist() == [0, 0]
    assert found[0].tolist() == [LOWEST, 0, 0, pytest.approx(math.log(2)), 0]
