"""Batches of answers: by length, so that little is padded, in an order that depends on seed and epoch alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from attrs import evolve

from draftmux.bench.agreement import first_difference
from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from draftmux.training.answers import Sample
    from draftmux.training.recipe import Sizes

STEP = 64  # samples whose lengths differ by less may share a batch


def usable(samples: Sequence[Sample], sizes: Sizes) -> list[Sample]:
    """Samples with something to learn from: an answer of two tokens or more, and a prompt that leaves room for it."""
    return [s for s in samples if s.prompt_length >= 2 and min(len(s.ids), sizes.length) - s.prompt_length >= 2]


def some_usable(samples: Sequence[Sample], sizes: Sizes) -> list[Sample]:
    """The usable ones; RequestError when there are none."""
    found = usable(samples, sizes)
    if not found:
        raise RequestError(
            f"none of {len(samples)} answers can be learned from: within --length {sizes.length} a prompt must leave "
            f"room for two tokens of its answer"
        )
    return found


def learnable(samples: Sequence[Sample], sizes: Sizes, learn: str) -> list[Sample]:
    """The usable ones; with `learn: all` their prompts count as answers, but for what all of them begin with."""
    found = some_usable(samples, sizes)
    if learn == "answers":
        return found
    ids = [sample.ids.tolist() for sample in found]
    same = first_difference(min(ids), max(ids))
    return [evolve(sample, prompt_length=min(sample.prompt_length, max(2, same))) for sample in found]


def batches(samples: Sequence[Sample], sizes: Sizes, seed: int, epoch: int) -> Iterator[list[Sample]]:
    """Groups of samples of similar length."""
    shuffle = random.Random(f"{seed} {epoch}").shuffle
    order = list(samples)
    shuffle(order)
    order.sort(key=lambda sample: min(len(sample.ids), sizes.length) // STEP)  # stable: random within a size
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


def padded(
    samples: Sequence[Sample], sizes: Sizes, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """`ids (B, L)`, `states (B, L-1, d)`, and whether a place is of an answer, `(B, L)`."""
    lengths = [min(len(sample.ids), sizes.length) for sample in samples]
    longest, width = max(lengths), samples[0].states.shape[1]
    ids = torch.zeros(len(samples), longest, dtype=torch.int64)
    answers = torch.zeros(len(samples), longest, dtype=torch.bool)
    states = torch.zeros(len(samples), longest - 1, width, dtype=dtype)
    for at, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        ids[at, :length] = sample.ids[:length]
        answers[at, sample.prompt_length : length] = True
        states[at, : length - 1] = sample.states[: length - 1].to(dtype)
    return ids, states, answers
