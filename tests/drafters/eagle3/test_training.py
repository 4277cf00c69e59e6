"""Training a head: where it begins, the loss, a run that goes on where it stopped, the head that comes out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma2Config, GemmaConfig, Qwen3Config

from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.drafters.eagle3.data import collate, draft_vocabulary
from draftmux.drafters.eagle3.drafter import Eagle3
from draftmux.drafters.eagle3.export import export
from draftmux.drafters.eagle3.format import DEFAULT_TAPS
from draftmux.drafters.eagle3.new_head import new_head
from draftmux.drafters.eagle3.recipe import HeadRecipe
from draftmux.drafters.eagle3.train import LAST, Objective, train
from draftmux.drafters.eagle3.unroll import Batch, unroll
from draftmux.errors import RequestError
from draftmux.generation import Generation
from draftmux.models.source import ModelSpec
from draftmux.protocols import Resources
from draftmux.routers.fixed import Fixed
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.training.answers import Sample
from draftmux.training.card import Origin
from draftmux.training.job import Job
from draftmux.training.optimizers import check_optimizer, optimizers_of
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
    batch = collate(group, RECIPE.unrolled_sizes)
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


def test_a_new_head_begins_with_the_targets_last_layer(single: Any, objective: Callable[[], Objective]) -> None:
    own, given = objective().head.layers[0].state_dict(), single.model.layers[-1].state_dict()
    width = single.config.hidden_size
    for name in ("q_proj", "k_proj", "v_proj"):
        assert torch.equal(own[f"self_attn.{name}.weight"][:, width:], given[f"self_attn.{name}.weight"])
    assert torch.equal(own["self_attn.o_proj.weight"], given["self_attn.o_proj.weight"])
    norms = {"hidden_norm.weight": "input_layernorm.weight", "post_attention_layernorm.weight": ""}
    for name, source in norms.items():
        assert torch.allclose(own[name], given[source or name])
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


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str, Any], Job]:
    """A run with a folder of its own."""
    return lambda name, report: Job(ModelSpec(source="org/tiny"), tmp_path / name, lambda taps: ([], []), report)


@pytest.mark.parametrize(
    ("config", "norms"),
    [
        (Qwen3Config, True),
        (GemmaConfig, True),  # keeps its norms less one
        (Gemma2Config, False),  # has other norms in those places
    ],
)
def test_a_head_takes_what_is_of_its_kind(config: Any, norms: bool) -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    model = AutoModelForCausalLM.from_config(
        config(vocab_size=30, hidden_size=16, intermediate_size=24, pad_token_id=0, **sizes)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0, 0.2)
    head, last = new_head(model, torch.arange(9), 3, evolve(RECIPE, intermediate=0)), model.model.layers[-1]
    assert torch.equal(head.layers[0].mlp.up_proj.weight, last.mlp.up_proj.weight)
    states = torch.randn(5, 16)
    pairs = {"hidden_norm": "input_layernorm", "post_attention_layernorm": "post_attention_layernorm"}
    for own, given in pairs.items():
        same = torch.allclose(head.layers[0].get_submodule(own)(states), last.get_submodule(given)(states), atol=1e-4)
        assert same == norms
    assert torch.allclose(head.norm(states), model.model.norm(states), atol=1e-4)


def test_muon_is_refused_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="does not go with --precision fp16; take bf16, or take --optimizer adamw"):
        check_optimizer(evolve(RECIPE, precision="fp16").schedule)
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(RequestError, match="needs torch 2"):
        check_optimizer(RECIPE.schedule)
    check_optimizer(evolve(RECIPE, optimizer="adamw").schedule)


class StopError(Exception):
    """A run was interrupted."""


def trained(head: Any) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in head.state_dict().items()}


def test_training_lowers_the_loss_and_goes_on_where_it_stopped(
    samples: list[Sample], objective: Callable[[], Objective], job: Callable[..., Job]
) -> None:
    parts, losses = (samples[:8], samples[8:]), list[float]()
    whole = objective()
    before = trained(whole.head)
    last = train(
        whole, parts, job("whole", lambda step, figures: losses.append(figures["loss"])), DEFAULT_TAPS, every=10
    )
    assert len(losses) == 3 and losses[-1] < 0.9 * losses[0]
    assert len(last["accuracy"]) == RECIPE.unroll and 1 <= last["chain_of_4"] <= 5
    assert last["chain_of_4"] < last["chain_of_4_learned"] <= 5

    def stop(step: int, figures: Any) -> None:
        raise StopError

    with pytest.raises(StopError):
        train(objective(), parts, job("halved", stop), DEFAULT_TAPS, every=10)
    halved = objective()
    again: list[int] = []
    assert train(halved, parts, job("halved", lambda step, _: again.append(step)), DEFAULT_TAPS, every=10) == last
    assert again == [20, 30]
    with pytest.raises(RequestError, match="taps was"):
        train(objective(), parts, job("halved", stop), DEFAULT_TAPS[:2], every=10)
    with pytest.raises(RequestError, match=r"held_out was 0\.0, and is 0\.3 now"):
        train(objective(), parts, evolve(job("halved", stop), held_out=0.3), DEFAULT_TAPS, every=10)
    for name, tensor in trained(whole.head).items():
        assert torch.equal(tensor, halved.head.state_dict()[name]), name
        assert torch.equal(tensor, before[name]) == (name == "embed_tokens.weight"), name


def test_the_exported_head_drafts_what_the_trained_one_would(
    single: Any, samples: list[Sample], objective: Callable[[], Objective], job: Any, record: Any, tmp_path: Path
) -> None:
    made = objective()
    figures = train(made, (samples, []), job("work", lambda *_: None), DEFAULT_TAPS)
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
