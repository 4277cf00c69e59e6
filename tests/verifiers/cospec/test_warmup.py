"""What stage 1 learns, by hand: the loss at labelled places, what positive labels weigh, figures, and which rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from draftmux.verifiers.cospec.mining import LABELS, Mismatch, balanced
from draftmux.verifiers.cospec.network import Sample
from draftmux.verifiers.cospec.warmup import Labelled, Supervised, balance_of, calibration_error, figures, grouped


def row(label: float, place: int = 0, context: int = 1, right: Any = None) -> Mismatch:
    numbers = np.zeros((2, 1), dtype=np.float32)
    return Mismatch("a", Sample(np.full(context, 5), (11, 12), (21, 22), numbers), place, label, right)


class Fixed(torch.nn.Module):
    """A network with these logits `(B, K)`."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits))

    def forward(self, batch: Any) -> torch.Tensor:
        return self.logits


def test_the_loss_is_the_cross_entropy_of_soft_labels_at_their_places() -> None:
    """-(w y log s + (1 - y) log(1 - s)), the mean over rows; s = 3/4 at the logit log 3."""
    network: Any = Fixed([[9.0, math.log(3)], [0.0, -9.0]])
    batch = Labelled.of([row(0.7, place=1), row(0.0, place=0)], 64, 39)
    loss, logits, labels = Supervised(network, 2.0)(batch)
    first = -(2 * 0.7 * math.log(0.75) + 0.3 * math.log(0.25))
    assert float(loss.detach()) == pytest.approx((first + math.log(2)) / 2)
    assert logits.tolist() == pytest.approx([math.log(3), 0.0]) and labels.tolist() == pytest.approx([0.7, 0.0])
    loss.backward()
    gradient = network.logits.grad
    assert gradient[0, 0] == 0 and gradient[1, 1] == 0  # places without a label
    assert gradient[0, 1] == pytest.approx((0.3 * 0.75 - 2 * 0.7 * 0.25) / 2)
    assert gradient[1, 0] == pytest.approx(0.5 / 2)


@pytest.mark.parametrize(
    ("labels", "weight"), [([1, 0, 0], 2.0), ([0.7, 0.3, 0.0, 0.6], 1.5), ([1, 1, 1, 0], 0.5), ([0, 0], 2.0)]
)
def test_positive_labels_weigh_as_much_as_the_others_within_bounds(labels: list[float], weight: float) -> None:
    assert balance_of([row(label) for label in labels]) == pytest.approx(weight)


def test_labels_of_outcomes() -> None:
    assert LABELS == {(True, True): 0.7, (True, False): 1.0, (False, True): 0.0, (False, False): 0.3}


def test_rows_that_are_right_both_ways_are_at_most_half() -> None:
    both = [row(0.7, right=(True, True)) for _ in range(6)]
    others = [row(1.0, right=(True, False)), row(0.0, right=(False, True))]
    kept = balanced([*both, *others], seed=0)
    assert len(kept) == 4 and all(any(each is other for each in kept) for other in others)
    assert len(balanced(both, seed=0)) == 6  # nothing else to learn from


def test_calibration_by_hand() -> None:
    """Bins [0.1, 0.2): chances 0.12 and 0.18, labels 0 and 1; [0.9, 1]: 0.9 and 1.0, both 1."""
    found = calibration_error([0.12, 0.18, 0.9, 1.0], [0, 1, 1, 1])
    assert found == pytest.approx((abs(0.30 - 1) + abs(1.9 - 2)) / 4)


def test_figures_of_held_out_rows_by_hand() -> None:
    told = figures([0.9, 0.4, 0.6, 0.1], [1.0, 0.7, 0.0, 0.3])
    assert told["auc"] == pytest.approx(3 / 4)  # of four pairs one is the wrong way round: 0.4 and 0.6
    assert told["mean_error"] == pytest.approx((0.1 + 0.3 + 0.6 + 0.2) / 4)
    assert told["agreement"] == pytest.approx(2 / 4)
    assert math.isnan(figures([0.2, 0.3], [0.0, 0.3])["auc"])


def test_batches_hold_rows_of_like_length_and_every_row_once() -> None:
    rows = [row(0.0, context=length) for length in (9, 1, 8, 2, 7)]
    groups = list(grouped(rows, 2, seed=3))
    assert sorted(tuple(len(each.sample.context) for each in group) for group in groups) == [(1, 2), (7, 8), (9,)]
