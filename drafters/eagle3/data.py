"""Batches for training a head, from answers on disk: by length, to pad little; the order by (seed, epoch)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from draftmux.drafters.eagle3.unroll import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftmux.drafters.eagle3.recipe import Sizes
    from draftmux.training.answers import Sample


def draft_vocabulary(samples: Sequence[Sample], size: int, vocab_size: int) -> torch.Tensor:
    """The most frequent ids of answers, ascending; `(size,)`. Ids that never occur fill up, the lowest first."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for sample in samples:
        counts += torch.bincount(sample.ids[sample.prompt_length :], minlength=vocab_size)
    order = torch.argsort(counts, descending=True, stable=True)
    return order[: min(size, vocab_size)].sort().values


def usable(samples: Sequence[Sample], sizes: Sizes) -> list[Sample]:
    """Samples with something to learn from: an answer of two tokens or more, and a prompt that leaves room for it."""
    return [s for s in samples if s.prompt_length >= 2 and min(len(s.ids), sizes.length) - s.prompt_length >= 2]


def batches(samples: Sequence[Sample], sizes: Sizes, seed: int, epoch: int) -> Iterator[list[Sample]]:
    """Groups of samples of similar length, in a random order that depends on seed and epoch alone."""
    shuffle = random.Random(f"{seed} {epoch}").shuffle
    order = list(samples)
    shuffle(order)
    order.sort(key=lambda sample: min(len(sample.ids), sizes.length) // 64)  # stable: random within a size
    groups: list[list[Sample]] = []
    group: list[Sample] = []
    for sample in order:
        longest = max(min(len(s.ids), sizes.length) for s in (*group, sample))
        if group and longest * (len(group) + 1) > sizes.tokens:
            groups.append(group)
            group = []
        group.append(sample)
    groups += [group] if group else []
    shuffle(groups)
    yield from groups


def collate(samples: Sequence[Sample], sizes: Sizes, dtype: torch.dtype = torch.float32) -> Batch:
    """One batch, padded. Rows are the last pairs of each sample: those whose predictions can lie in its answer."""
    lengths = [min(len(sample.ids), sizes.length) for sample in samples]
    longest, width = max(lengths), samples[0].states.shape[1]
    ids = torch.zeros(len(samples), longest, dtype=torch.int64)
    answers = torch.zeros(len(samples), longest, dtype=torch.bool)
    states = torch.zeros(len(samples), longest - 1, width, dtype=dtype)
    starts = [max(0, sample.prompt_length - 1 - sizes.steps) for sample in samples]  # first row that ever counts
    most = max(length - 2 - start for length, start in zip(lengths, starts, strict=True))
    rows = torch.full((len(samples), most), -1)
    for at, (sample, length, start) in enumerate(zip(samples, lengths, starts, strict=True)):
        ids[at, :length] = sample.ids[:length]
        answers[at, sample.prompt_length : length] = True
        states[at, : length - 1] = sample.states[: length - 1].to(dtype)
        rows[at, : length - 2 - start] = torch.arange(start, length - 2)
    return Batch(ids, states, rows, answers)
