"""Logistic regressions without a bias, many at once, and what they are judged by. Knows nothing of where data is from.

The objective of a column is `mean BCE + penalty / 2 * |w|^2`, over states whose numbers have a root mean square of
1; all columns are convex and share one matrix of states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import frozen
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

STEPS = 100
WIDE = 16  # columns that a product is padded to: with fewer it is several times slower


def fit(states: Tensor, labels: Tensor, penalties: Sequence[float]) -> list[Tensor]:
    """Weights `(d, c)` from `states (n, d)` and `labels (n, c)` for each penalty. The scale of states is folded in.

    The largest penalty comes first, and each fit starts where the one before has ended.
    """
    scale = states.square().mean(0).sqrt().clamp(min=1e-12)
    problem = Problem(states / scale, labels.to(states.dtype))
    weights = torch.zeros(states.shape[1], labels.shape[1], dtype=states.dtype)
    found = {}
    for penalty in sorted(penalties, reverse=True):
        weights = problem.solve(weights, penalty)
        found[penalty] = weights / scale[:, None]
    return [found[penalty] for penalty in penalties]


class Problem:
    """The objective over scaled states; its gradient by hand, since that of a few columns is slow."""

    def __init__(self, states: Tensor, labels: Tensor) -> None:
        self.states, self.labels = states, labels
        self.errors = states.new_zeros(len(states), -(-labels.shape[1] // WIDE) * WIDE)

    def solve(self, start: Tensor, penalty: float) -> Tensor:
        """The minimum, searched for from `start (d, c)` on."""
        weights = start.clone()
        solver = torch.optim.LBFGS(
            [weights], max_iter=STEPS, history_size=20, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
        )

        def loss() -> float:
            value, weights.grad = self.at(weights, penalty)
            return value

        solver.step(loss)
        return weights

    def at(self, weights: Tensor, penalty: float) -> tuple[float, Tensor]:
        """The sum over columns, and its gradient `(d, c)`."""
        logits, count = self.states @ weights, weights.shape[1]
        value = functional.binary_cross_entropy_with_logits(logits, self.labels, reduction="none").mean(0)
        self.errors[:, :count] = (logits.sigmoid() - self.labels) / len(logits)
        gradient = (self.states.t() @ self.errors)[:, :count] + penalty * weights
        return float((value + penalty / 2 * weights.square().sum(0)).sum()), gradient


@frozen
class Quality:
    """How well scores tell labels: areas under ROC and precision-recall curve; at a threshold, precision and recall."""

    auc: float
    ap: float
    f1: float
    precision: float
    recall: float
    positives: int
    negatives: int


def quality(scores: NDArray[np.float64], labels: NDArray[np.bool_], threshold: float) -> Quality | None:
    """At that threshold; None where only one of both labels is there, and nothing can be told apart."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    positives = int(labels.sum())
    if positives in (0, len(labels)):
        return None
    chosen = scores >= threshold
    right = int((chosen & labels).sum())
    precision, recall = right / max(int(chosen.sum()), 1), right / positives
    f1 = 2 * right / (int(chosen.sum()) + positives)
    auc, ap = float(roc_auc_score(labels, scores)), float(average_precision_score(labels, scores))
    return Quality(auc, ap, f1, precision, recall, positives, len(labels) - positives)


def best_threshold(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The threshold of the best F1, midway between two scores; of equal ones, the highest."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    right = np.cumsum(labels[order])
    f1 = 2 * right / (np.arange(1, len(ranked) + 1) + max(int(labels.sum()), 1))
    last = np.append(ranked[1:] < ranked[:-1], True)  # thresholds stand between different scores
    best = int(np.where(last, f1, -1).argmax())
    return float(ranked[best] + ranked[best + 1]) / 2 if best + 1 < len(ranked) else float(ranked[best])
