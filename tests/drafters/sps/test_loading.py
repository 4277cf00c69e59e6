"""What `sps` accepts: options, draft models with the target's vocabulary, backends that run a second model."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from draftmux.drafters.neural import self_test
from draftmux.drafters.neural.self_test import check_agreement
from draftmux.drafters.sps.drafter import Sps
from draftmux.drafters.sps.model import refuse_other_ids
from draftmux.errors import ModelError, PluginError
from draftmux.generation import Generation
from draftmux.models.checkpoint import quietly
from draftmux.models.source import ModelSpec
from draftmux.protocols import Drafter, Resources
from draftmux.testing.conformance.backends import saved_model
from draftmux.testing.conformance.scenes import LETTERS, small_tokenizer
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted, tiny_model

OURS = {"a": 0, "b": 1, "c": 2, "<end>": 3}
SaveModel = Callable[..., ModelSpec]


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """A folder with a tiny draft model and a letter tokenizer."""

    def save(letters: str = LETTERS, model: Any = None) -> ModelSpec:
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        ids = {letter: number for number, letter in enumerate(letters)}
        core = Tokenizer(models.BPE(vocab={**ids, "<end>": len(letters)}, merges=[], unk_token="?"))
        with quietly():
            (model or tiny_model("llama")).save_pretrained(tmp_path)
            PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", unk_token="?").save_pretrained(tmp_path)
        return ModelSpec(source=str(tmp_path), dtype="float64", device="cpu")

    return save


def resources(target: Any, spec: ModelSpec | None = None) -> Resources:
    return Resources(small_tokenizer(), target, {} if spec is None else {"draft": spec})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give either 'model', a name in `models`, or 'layers'"),
        ({"model": "draft", "layers": 2}, "give either 'model'"),
        ({"model": "draft", "adapter": "folder"}, "'adapter' goes with 'layers'"),
        ({"model": "draft", "draw": "sampled", "top_k": 2}, "drafts chains, .* set top_k: 1, got 2, or draw: coupled"),
        ({"model": "draft", "depth": 0}, "depth"),
        ({"model": "draft", "depth": 65}, "depth"),
        ({"model": "draft", "top_k": 0}, "top_k"),
        ({"model": "draft", "max_nodes": 0}, "max_nodes"),
        ({"layers": -1}, "layers"),
        ({"layers": 1, "min_confidence": 1.5}, "min_confidence"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sps(**options)


def test_what_it_declares() -> None:
    chain, tree, sampled = Sps(layers=1), Sps(model="draft", top_k=4), Sps(model="draft", draw="sampled")
    assert all(isinstance(each, Drafter) for each in (chain, tree, sampled))
    assert [(each.emits.tree, each.emits.q) for each in (chain, tree, sampled)] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert chain.needs.models == () and tree.needs.models == ("draft",) and not chain.uses()


def test_before_it_is_bound_it_says_so(make_context: Any) -> None:
    with pytest.raises(PluginError, match="call `bind` and use what it returns"):
        Sps(layers=1).begin(make_context([1]))
    with pytest.raises(PluginError, match="call `bind` and use what it returns"):
        Sps(layers=1).propose([])


def test_a_backend_without_models_is_refused() -> None:
    target = scripted(hash_law(1, 6), 6)
    for options in ({"layers": 1}, {"model": "draft"}):
        with pytest.raises(ModelError, match=r"sps runs a model of its own .* ScriptedTarget cannot; use `backend: .*"):
            Sps(**options).bind(resources(target, saved_model()))


@pytest.mark.parametrize(
    "theirs",
    [OURS, {"a": 0, "b": 1, "c": 2}, OURS | {"d": 4, "<pad>": 5}, {"a": 0, "b": 1}, {}],
    ids=["same", "fewer added tokens", "more tokens", "subset", "nothing"],
)
def test_vocabularies_that_agree(theirs: dict[str, int]) -> None:
    refuse_other_ids("draft", OURS, theirs)
    refuse_other_ids("draft", theirs, OURS)


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (OURS | {"a": 1, "b": 0}, "draft model 'draft': 2 tokens have other ids .* first is 'a', 1 instead of 0"),
        ({"b": 4}, "1 tokens have other ids .* 'b', 4 instead of 1"),
        ({"a": 0, "x": 1, "c": 2}, "1 ids stand for other texts .* first 1, 'x' instead of 'b'"),
    ],
)
def test_vocabularies_that_do_not(theirs: dict[str, int], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        refuse_other_ids("draft", OURS, theirs)


@pytest.mark.parametrize(
    ("letters", "said"), [("ba" + LETTERS[2:], "2 tokens have other ids"), ("ä" + LETTERS[1:], "stand for other texts")]
)
def test_a_draft_model_with_other_ids_is_refused_when_loaded(
    make_target: Any, save_model: SaveModel, letters: str, said: str
) -> None:
    with pytest.raises(ModelError, match=f"draft model 'draft': .*{said}"):
        Sps(model="draft", self_test=False).bind(resources(make_target(), save_model(letters)))


@pytest.mark.parametrize("size", [40, 48])
@pytest.mark.parametrize("backend", ["static", "transformers"])
def test_a_draft_model_from_a_folder_drafts(make_target: Any, save_model: SaveModel, backend: str, size: int) -> None:
    """Its own embedding may be padded."""
    draft = copy.deepcopy(tiny_model("llama"))
    draft.resize_token_embeddings(size, mean_resizing=False)
    target = make_target(backend)
    drafter = Sps(model="draft", depth=3).bind(resources(target, save_model(model=draft.double())))
    asked = [Ask((1, 2, 3), Generation(max_new_tokens=20))]
    [outcome] = serve(assemble(target, {"sps": drafter}), asked).values()
    assert outcome.finished.tokens == serve(assemble(target), asked)["request"].finished.tokens
    assert outcome.finished.metrics.steps == 5


def test_another_device_is_named(make_target: Any) -> None:
    class Elsewhere:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return torch.device("meta") if name == "device" else getattr(self.inner, name)

    with pytest.raises(ModelError, match="the draft model is on cpu and the target on meta; set `device` of both"):
        Sps(model="draft").bind(resources(Elsewhere(make_target()), saved_model()))


def test_a_useless_draft_model_is_warned_of(make_target: Any, make_sps: Any) -> None:
    target = make_target()
    with pytest.warns(UserWarning, match=r"other: \d+ of the first \d+ drafted tokens were the target's own"):
        share = check_agreement("other", make_sps(target, copy.deepcopy(tiny_model("qwen3"))), resources(target))
    assert share is not None and share < 0.35


def test_a_good_one_is_not(make_target: Any, make_sps: Any) -> None:
    target = make_target()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_agreement("same", make_sps(target), resources(target)) == 1.0
        assert check_agreement("same", make_sps(target), Resources(None, target)) is None
        unsure = make_sps(target, min_confidence=math.nextafter(1.0, 0.0))
        assert check_agreement("unsure", unsure, resources(target)) in (None, 1.0)


def test_the_first_layers_are_tested_when_loaded(make_target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "LEAST_OF_LAYERS", 0.99)
    with pytest.warns(UserWarning, match=r"sps \(layers: 1\): \d+ of the first"):
        Sps(layers=1).bind(resources(make_target()))
