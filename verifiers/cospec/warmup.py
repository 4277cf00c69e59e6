"""Stage 1: the arbiter learns labels of single mismatches, before it decides in whole decodings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import frozen
from torch import nn

from draftmux.verifiers.cospec.network import Batch, Network

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from draftmux.verifiers.cospec.mining import Mismatch

BALANCE = (0.5, 2.0)  # bounds of the weight of positive labels
BINS = 10  # of the calibration error


@frozen(eq=False)
class Labelled:
    """Blocks, and of each the place that has a label."""

    blocks: Batch
    places: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Labelled:
        """The same on a device."""
        return Labelled(self.blocks.to(device), self.places.to(device), self.labels.to(device))

    @classmethod
    def of(cls, rows: Sequence[Mismatch], window: int, separator: int) -> Labelled:
        """Of some rows."""
        blocks = Batch.of([row.sample for row in rows], window, separator)
        labels = torch.tensor([row.label for row in rows], dtype=torch.float32)
        return cls(blocks, torch.tensor([row.place for row in rows]), labels)


class Supervised(nn.Module):
    """Binary cross-entropy with soft labels, at the labelled places alone."""

    def __init__(self, network: Network, balance: float) -> None:
        super().__init__()
        self.network, self.balance = network, balance

    def forward(self, batch: Labelled, done: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The loss; logits and labels, `(B,)` each."""
        logits = self.network(batch.blocks).gather(1, batch.places[:, None])[:, 0]
        balance = logits.new_tensor(self.balance)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.labels, pos_weight=balance)
        return loss, logits, batch.labels


def balance_of(rows: Sequence[Mismatch]) -> float:
    """What positive labels weigh: as much as negative ones in all, within bounds."""
    positive = sum(row.label for row in rows)
    return float(np.clip((len(rows) - positive) / max(positive, 1e-9), *BALANCE))


def grouped(rows: Sequence[Mismatch], size: int, seed: int | None) -> Iterator[list[Mismatch]]:
    """Groups of rows whose blocks are of similar length, in an order of chance; of the given order without a seed."""
    order = sorted(rows, key=lambda row: row.sample.size)
    groups = [order[at : at + size] for at in range(0, len(order), size)]
    if seed is not None:
        random.Random(seed).shuffle(groups)
    return iter(groups)


def figures(chances: Sequence[float], labels: Sequence[float]) -> dict[str, Any]:
    """Of held-out rows: area under the curve of labels above a half (NaN if all are alike), calibration, mean error."""
    from sklearn.metrics import roc_auc_score

    found, wanted = np.asarray(chances), np.asarray(labels)
    positive = wanted > 0.5
    auc = float(roc_auc_score(positive, found)) if 0 < positive.sum() < len(positive) else float("nan")
    return {
        "auc": auc,
        "calibration_error": calibration_error(found, wanted),
        "mean_error": float(np.abs(found - wanted).mean()),
        "agreement": float(((found >= 0.5) == positive).mean()),
    }


def calibration_error(chances: Any, labels: Any) -> float:
    """ECE: how far mean chance and mean label are apart, in bins of chance, weighed by their rows."""
    found, wanted = np.asarray(chances, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    bins = np.minimum((found * BINS).astype(np.int64), BINS - 1)
    gaps = [abs(found[bins == b].sum() - wanted[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(found))
