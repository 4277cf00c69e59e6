"""What a head is trained on besides the texts: its draft vocabulary, and the pairs to unroll from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from draftmux.drafters.eagle3.unroll import Batch
from draftmux.training.batches import padded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.training.answers import Sample
    from draftmux.training.recipe import Sizes


def draft_vocabulary(samples: Sequence[Sample], size: int, vocab_size: int) -> torch.Tensor:
    """The most frequent ids of answers, ascending; `(size,)`. Ids that never occur fill up, the lowest first."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sample in samples:
        counts += torch.bincount(sample.ids[sample.prompt_length :], minlength=vocab_size)
    order = torch.argsort(counts, descending=True, stable=True)
    return order[: min(size, vocab_size)].sort().values


def collate(samples: Sequence[Sample], sizes: Sizes, dtype: torch.dtype = torch.float32) -> Batch:
    """One batch, padded. Rows are the last pairs of each sample: those whose predictions can lie in its answer."""
    ids, states, answers = padded(samples, sizes, dtype)
    lengths = [min(len(sample.ids), sizes.length) for sample in samples]
    starts = [max(0, sample.prompt_length - 1 - sizes.steps) for sample in samples]  # first row that ever counts
    most = max(length - 2 - start for length, start in zip(lengths, starts, strict=True))
    rows = torch.full((len(samples), most), -1)
    for at, (length, start) in enumerate(zip(lengths, starts, strict=True)):
        rows[at, : length - 2 - start] = torch.arange(start, length - 2)
    return Batch(ids, states, rows, answers)
