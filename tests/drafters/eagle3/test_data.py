"""What a head is trained on: pairs, batches, the draft vocabulary, rates, and how far it is unrolled."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from draftmux.drafters.eagle3.data import collate, draft_vocabulary
from draftmux.drafters.eagle3.recipe import HeadRecipe
from draftmux.drafters.eagle3.train import chain_lengths
from draftmux.training.answers import Sample
from draftmux.training.batches import batches, learnable, usable
from draftmux.training.recipe import Schedule, Sizes

SIZES = st.builds(Sizes, length=st.integers(6, 40), tokens=st.integers(10, 100), steps=st.integers(1, 5))
LENGTHS = st.lists(st.tuples(st.integers(4, 50), st.integers(1, 30)), min_size=1, max_size=6)


def blank(lengths: list[tuple[int, int]]) -> list[Sample]:
    """Samples of those lengths and prompt lengths, with states that tell their places."""
    return [
        Sample(str(at), torch.arange(length) + 1, torch.arange(length - 1.0)[:, None] + 100 * at, min(prompt, length))
        for at, (length, prompt) in enumerate(lengths)
    ]


@given(lengths=LENGTHS, sizes=SIZES)
def test_rows_are_those_that_predict_a_token_of_the_answer(lengths: Any, sizes: Sizes) -> None:
    samples = usable(blank(lengths), sizes)
    if not samples:
        return
    batch = collate(samples, sizes)
    for at, sample in enumerate(samples):
        length = min(len(sample.ids), sizes.length)
        assert batch.ids[at, :length].tolist() == sample.ids[:length].tolist()
        assert batch.states[at, : length - 1, 0].tolist() == sample.states[: length - 1, 0].tolist()
        predicts = {
            (row, step)
            for step in range(sizes.steps)
            for row in range(length - 1)
            if sample.prompt_length <= row + 2 + step < length
        }
        found = {
            (int(batch.rows[at, column]), step)
            for step in range(sizes.steps)
            for column in batch.valid(step)[at].nonzero().flatten().tolist()
        }
        assert found == predicts


@given(lengths=LENGTHS, sizes=SIZES)
def test_usable_samples_have_something_to_learn_from(lengths: Any, sizes: Sizes) -> None:
    samples = blank(lengths)
    kept = {sample.key for sample in usable(samples, sizes)}
    for sample in samples:
        answer = min(len(sample.ids), sizes.length) - sample.prompt_length
        assert (sample.key in kept) == (sample.prompt_length >= 2 and answer >= 2)


@given(lengths=LENGTHS, sizes=SIZES, seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_batches_hold_every_sample_once_and_keep_the_limit(lengths: Any, sizes: Sizes, seed: int, epoch: int) -> None:
    samples = blank(lengths)
    groups = list(batches(samples, sizes, seed, epoch))
    assert sorted(sample.key for group in groups for sample in group) == sorted(sample.key for sample in samples)
    for group in groups:
        longest = max(min(len(sample.ids), sizes.length) for sample in group)
        assert len(group) == 1 or longest * len(group) <= sizes.tokens
    again = batches(samples, sizes, seed, epoch)
    assert [[sample.key for sample in group] for group in again] == [[s.key for s in group] for group in groups]


def test_epochs_have_orders_of_their_own() -> None:
    samples, sizes = blank([(10, 3)] * 12), Sizes(64, 20, 1)
    orders = {
        tuple(sample.key for group in batches(samples, sizes, seed, epoch) for sample in group)
        for seed in range(2)
        for epoch in range(3)
    }
    assert len(orders) == 6


@given(
    texts=st.lists(st.lists(st.integers(0, 11), min_size=3, max_size=20), min_size=1, max_size=5),
    size=st.integers(1, 14),
)
def test_the_draft_vocabulary_is_the_most_frequent_ids_of_answers(texts: list[list[int]], size: int) -> None:
    samples = [Sample("", torch.tensor(text), torch.zeros(len(text) - 1, 1), 2) for text in texts]
    counts = Counter(token for text in texts for token in text[2:])
    best = sorted(range(12), key=lambda token: (-counts[token], token))[:size]
    assert draft_vocabulary(samples, size, 12).tolist() == sorted(best)


@given(data=st.data(), depth=st.integers(1, 5))
def test_chain_lengths_count_leading_hits(data: st.DataObject, depth: int) -> None:
    columns = data.draw(st.lists(st.lists(st.integers(-1, 1), min_size=5, max_size=5), min_size=1, max_size=8))
    expected = []
    for column in columns:
        if column[0] >= 0:
            expected.append(next((at for at, hit in enumerate(column[:depth]) if hit != 1), depth))
    assert chain_lengths(torch.tensor(columns).T[:, None], depth).tolist() == expected


@given(steps=st.integers(1, 300), warmup=st.integers(0, 100), peak=st.floats(1e-6, 1.0))
def test_the_rate_climbs_to_its_peak_and_falls_to_a_tenth(steps: int, warmup: int, peak: float) -> None:
    rates = [Schedule(steps, peak, warmup, 1.0).rate(step) for step in range(steps + 1)]
    ramp, fall = rates[:warmup], rates[warmup:]
    assert ramp == sorted(ramp) and fall == sorted(fall, reverse=True)
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    assert all(math.isclose(rate, peak * (step + 1) / warmup) for step, rate in enumerate(ramp))
    if steps > warmup:
        assert math.isclose(fall[0], peak) and math.isclose(fall[-1], peak / 10)


@given(unroll=st.integers(1, 9), ramp=st.floats(0, 1), shares=st.lists(st.floats(0, 1, exclude_max=True), max_size=9))
def test_the_unrolling_grows_to_its_full_length_within_the_ramp(unroll: int, ramp: float, shares: list[float]) -> None:
    recipe = HeadRecipe(unroll=unroll, ramp=ramp)
    found = [recipe.unrolled(done) for done in sorted(shares)]
    assert found == sorted(found) and all(1 <= steps <= unroll for steps in found)
    assert recipe.unrolled(ramp) == recipe.unrolled(1.0) == unroll
    assert ramp == 0 or recipe.unrolled(0.0) == 1


OPENING = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@given(opening=OPENING, rests=st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=9), min_size=1, max_size=5))
def test_all_is_learned_but_what_every_sample_begins_with(opening: list[int], rests: list[list[int]]) -> None:
    samples = [
        Sample(str(at), torch.tensor([*opening, *rest]), torch.zeros(len(opening) + len(rest) - 1, 1), len(opening) + 2)
        for at, rest in enumerate(rests)
    ]
    assert [each.prompt_length for each in learnable(samples, Sizes(), "answers")] == [len(opening) + 2] * len(rests)
    texts = [sample.ids.tolist() for sample in samples]
    same = next(
        (at for at, column in enumerate(zip(*texts, strict=False)) if len(set(column)) > 1), min(map(len, texts))
    )
    for sample, found in zip(samples, learnable(samples, Sizes(), "all"), strict=True):
        assert found.prompt_length == min(len(opening) + 2, max(2, same))
        assert torch.equal(found.ids, sample.ids)
