"""Training a head: what is learned from, the loss, a run that goes on where it stopped, the head that comes out."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.drafters.eagle3.data import collate, draft_vocabulary
from draftmux.drafters.eagle3.drafter import Eagle3
from draftmux.drafters.eagle3.export import export
from draftmux.drafters.eagle3.format import DEFAULT_TAPS
from draftmux.drafters.eagle3.recipe import HeadRecipe
from draftmux.drafters.eagle3.train import LAST, Objective, chain_lengths, new_head, train
from draftmux.drafters.eagle3.unroll import Batch, unroll
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routers.fixed import Fixed
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.training.answers import Sample
from draftmux.training.batches import batches, usable
from draftmux.training.card import Origin
from draftmux.training.optimizers import optimizers_of
from draftmux.training.recipe import Schedule, Sizes
from draftmux.types import Budget

RECIPE = HeadRecipe(
    vocabulary=24,
    steps=30,
    learning_rate=4e-3,
    warmup=5,
    unroll=3,
    ramp=0.0,
    batch_tokens=72,
    length=26,
    intermediate=24,
)
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


# On a target.


@pytest.fixture(scope="module")
def single(model: Any) -> Any:
    """The random target in float32, as heads are trained."""
    return copy.deepcopy(model).float()


@pytest.fixture(scope="module")
def samples(single: Any) -> list[Sample]:
    """Its greedy answers to some prompts, with its states."""
    backend = TransformersBackend(self_check=False).over(copy.deepcopy(single), taps=(*DEFAULT_TAPS, LAST))
    prompts = [(1 + at, 3 + 2 * at, 5)[: 2 + at % 2] for at in range(10)]
    asks = [Ask(p, Generation(max_new_tokens=16 + at), str(at)) for at, p in enumerate(prompts)]
    outcomes = serve(assemble(backend), asks)
    found = []
    for ask in asks:
        ids = (*ask.tokens, *outcomes[ask.request_id].finished.tokens)
        opened = backend.open(ids)
        backend.close(opened.sequence)
        states = torch.cat([opened.taps[tap] for tap in (*DEFAULT_TAPS, LAST)], -1)
        found.append(Sample(ask.request_id, torch.tensor(ids), states, len(ask.tokens)))
    return found


@pytest.fixture
def objective(single: Any, samples: list[Sample]) -> Callable[[], Objective]:
    """A new head, and its loss."""

    def make() -> Objective:
        model = copy.deepcopy(single)
        ids = draft_vocabulary(samples, RECIPE.vocabulary, 40)
        return Objective(new_head(model, ids, 3, RECIPE), model, ids, RECIPE)

    return make


def test_the_loss_is_the_cross_entropy_with_the_targets_own_law(
    single: Any, samples: list[Sample], objective: Callable[[], Objective]
) -> None:
    made, group = objective(), samples[3:6]
    batch = collate(group, RECIPE.sizes)
    loss, hits = made(batch)
    expected, ids = torch.zeros(()), made.ids.tolist()
    seen = Batch(batch.ids, batch.states[..., :96], batch.rows, batch.answers)
    for step, states in enumerate(unroll(made.head, seen, RECIPE.unroll)):
        terms = []
        for at, sample in enumerate(group):
            length = min(len(sample.ids), RECIPE.length)
            logits = single(input_ids=sample.ids[None]).logits[0]
            for column, row in enumerate(batch.rows[at].tolist()):
                place = row + 2 + step
                if row < 0 or not sample.prompt_length <= place < length:
                    assert hits[step, at, column] == -1
                    continue
                hit = ids[int(made.head.lm_head(made.head.norm(states[at, column])).argmax())] == int(sample.ids[place])
                assert hits[step, at, column] == hit
                if int(sample.ids[place]) not in ids:  # the law says little of what the head cannot draft
                    continue
                p = logits[place - 1][ids].softmax(-1)
                q = made.head.lm_head(made.head.norm(states[at, column])).softmax(-1)
                terms.append(-(p * q.log()).sum())
        expected += 0.8**step * torch.stack(terms).mean()
    assert torch.isclose(loss, expected, rtol=1e-4)


@given(unroll=st.integers(1, 9), ramp=st.floats(0, 1), shares=st.lists(st.floats(0, 1, exclude_max=True), max_size=9))
def test_the_unrolling_grows_to_its_full_length_within_the_ramp(unroll: int, ramp: float, shares: list[float]) -> None:
    recipe = HeadRecipe(unroll=unroll, ramp=ramp)
    found = [recipe.unrolled(done) for done in sorted(shares)]
    assert found == sorted(found) and all(1 <= steps <= unroll for steps in found)
    assert recipe.unrolled(ramp) == recipe.unrolled(1.0) == unroll
    assert ramp == 0 or recipe.unrolled(0.0) == 1


def test_a_new_head_begins_with_the_targets_last_layer(single: Any, objective: Callable[[], Objective]) -> None:
    own, given = objective().head.layers[0].state_dict(), single.model.layers[-1].state_dict()
    width = single.config.hidden_size
    for name in ("q_proj", "k_proj", "v_proj"):
        assert torch.equal(own[f"self_attn.{name}.weight"][:, width:], given[f"self_attn.{name}.weight"])
    assert torch.equal(own["self_attn.o_proj.weight"], given["self_attn.o_proj.weight"])
    assert torch.equal(own["hidden_norm.weight"], given["input_layernorm.weight"])
    assert torch.equal(own["post_attention_layernorm.weight"], given["post_attention_layernorm.weight"])
    assert torch.equal(own["input_layernorm.weight"], torch.ones(width))  # of the embedding: nothing to begin with


def test_muon_has_the_matrices_between_states_and_adamw_the_rest(objective: Callable[[], Objective]) -> None:
    made = objective()
    names = {id(parameter): name for name, parameter in made.named_parameters()}
    both = optimizers_of(made, RECIPE.schedule)
    muon, adamw = ({names[id(p)] for group in each.param_groups for p in group["params"]} for each in both)
    assert muon | adamw == {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert {"head.fc.weight", "head.layers.0.mlp.up_proj.weight"} <= muon
    assert {"head.lm_head.weight", "head.norm.weight"} <= adamw
    [only] = optimizers_of(made, evolve(RECIPE, optimizer="adamw").schedule)
    assert len(only.param_groups[0]["params"]) == len(muon) + len(adamw)


class StopError(Exception):
    """A run was interrupted."""


def trained(head: Any) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in head.state_dict().items()}


def test_training_lowers_the_loss_and_goes_on_where_it_stopped(
    samples: list[Sample], objective: Callable[[], Objective], tmp_path: Path
) -> None:
    parts, losses = (samples[:8], samples[8:]), list[float]()
    whole = objective()
    before = trained(whole.head)
    last = train(whole, parts, tmp_path / "whole", lambda step, figures: losses.append(figures["loss"]), every=10)
    assert len(losses) == 3 and losses[-1] < 0.9 * losses[0]
    assert len(last["accuracy"]) == RECIPE.unroll and 1 <= last["chain_of_4"] <= 5

    def stop(step: int, figures: Any) -> None:
        raise StopError

    with pytest.raises(StopError):
        train(objective(), parts, tmp_path / "halved", stop, every=10)
    halved = objective()
    again: list[int] = []
    assert train(halved, parts, tmp_path / "halved", lambda step, _: again.append(step), every=10) == last
    assert again == [20, 30]
    for name, tensor in trained(whole.head).items():
        assert torch.equal(tensor, halved.head.state_dict()[name]), name
        assert torch.equal(tensor, before[name]) == (name == "embed_tokens.weight"), name


def test_the_exported_head_drafts_what_the_trained_one_would(
    single: Any, samples: list[Sample], objective: Callable[[], Objective], record: Any, tmp_path: Path
) -> None:
    made = objective()
    figures = train(made, (samples, []), tmp_path / "work", lambda *_: None)
    origin = Origin("org/tiny", single, "prompts", "a command", RECIPE, {**figures, "accuracy": [0.5, 0.25]})
    export(tmp_path / "head", made.head, made.ids, DEFAULT_TAPS, origin)
    card = (tmp_path / "head" / "README.md").read_text()
    assert all(
        part in card for part in ("org/tiny", "prompts", "a command", "outputs after layers 2, 4, 5", "24 tokens")
    )
    drafter = Eagle3(head=str(tmp_path / "head"), self_test=False, depth=3, top_k=1)
    target = TransformersBackend(self_check=False).over(copy.deepcopy(single), taps=drafter.needs.taps)
    router = Fixed(drafter="eagle", budget=Budget(9))
    parts = assemble(target, {"eagle": drafter.bind(Resources(backend=target))}, router)
    serve(parts, [Ask(tuple(samples[0].ids[:5].tolist()), Generation(max_new_tokens=12))])
    rounded, embedding = made.head.to(torch.bfloat16).float(), single.get_input_embeddings()
    rounded.embed_tokens = embedding
    for one in record:
        pairs, ids = len(one.tokens) - 1, torch.tensor([[*one.tokens, *one.path]])
        hidden = single(input_ids=ids, output_hidden_states=True).hidden_states
        states = torch.cat([hidden[at] for at in (2, 4, 5)], -1)[:, :-1]
        batch = Batch(ids, states, torch.tensor([[pairs - 1]]), torch.ones_like(ids, dtype=torch.bool))
        [*_, found] = unroll(rounded, batch, len(one.path) + 1)
        logits = rounded.lm_head(rounded.norm(found[0, 0]))
        assert torch.allclose(logits, one.logits, atol=1e-4)
        assert one.children == [int(made.ids[logits.argmax()])]
    assert {len(one.path) for one in record} == {0, 1, 2}
