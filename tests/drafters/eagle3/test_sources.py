"""Where a head comes from, whom it was trained for, and which hidden states its config asks for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from draftmux.config.load import parse_pipeline
from draftmux.drafters.eagle3.drafter import Eagle3
from draftmux.drafters.eagle3.format import DEFAULT_TAPS, IDS
from draftmux.errors import ModelError, PluginError
from draftmux.models.fingerprint import fingerprint
from draftmux.protocols import Resources
from draftmux.types import Tap

NESTED = {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {IDS: [0, 3, 5]}}
SPECULATORS = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"}


@pytest.fixture
def head(random_plain: Any, write: Any, tmp_path: Path) -> Callable[..., str]:
    """Write a sound head whose config says something more."""

    def head(**more: Any) -> str:
        plain = random_plain()
        return write(tmp_path / "head", {**plain.config, **more}, plain.tensors)  # type: ignore[no-any-return]

    return head


def taps(*layers: int) -> tuple[Tap, ...]:
    return tuple(Tap(layer, "resid_post") for layer in layers)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({**SPECULATORS, IDS: [1, 3, 6]}, (0, 2, 5)),  # outputs after so many layers
        (NESTED, (0, 3, 5)),  # numbers of layers
        ({"target_layer_ids": [1, 2, 6]}, (1, 2, 6)),
        ({**NESTED, IDS: [1, 3, 6]}, (0, 2, 5)),  # the outer key counts
        ({}, (1, 3, 4)),  # before layers 2, 8 // 2 and 8 - 3
        ({**SPECULATORS, IDS: None}, (1, 3, 4)),
    ],
)
def test_hidden_states_are_found_by_the_place_of_the_key(config: Any, layers: Any, head: Any) -> None:
    found = Eagle3(head=head(**config)).needs.taps
    assert [tap.index(8) for tap in found] == list(layers)
    assert {tap.kind for tap in found} == {"resid_post"}


def test_a_pipeline_file_may_say_otherwise(head: Any) -> None:
    folder = head(**NESTED)
    drafter = f"eagle: {{use: eagle3, head: '{folder}', taps: [2.resid_post, mid.resid_post, -1.resid_post]}}"
    spec = parse_pipeline(f"models: {{target: {{source: org/model}}}}\ndrafters:\n  {drafter}\n", "p")
    assert spec.drafters["eagle"].plugin.needs.taps == (*taps(2), Tap.parse("mid.resid_post"), *taps(-1))


def test_what_was_assumed_is_logged(head: Any, bind: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "draftmux.drafters.eagle3.checkpoint"):
        bind(head(**SPECULATORS, norm_output=True))
    [line] = caplog.messages
    for part in ("speculators layout", "norm_output", "1.resid_post, mid-1.resid_post, -4.resid_post"):
        assert part in line
    for assumed in ("norm_before_residual: false", "hidden states before layers 2, L // 2 and L - 3"):
        assert assumed in line


def test_a_target_without_such_layers(head: Any, bind: Any) -> None:
    with pytest.raises(ModelError, match="layers 0 to 7"):
        bind(head(**SPECULATORS, **{IDS: [1, 3, 9]}))


def test_a_backend_that_runs_no_other_model(head: Any) -> None:
    with pytest.raises(ModelError, match="eagle3 runs a model of its own on the target's backend, and object cannot"):
        Eagle3(head=head()).bind(Resources(backend=object()))  # type: ignore[arg-type]


def test_the_fingerprint_of_the_target(head: Any, bind: Any, model: Any) -> None:
    bind(head(draftmux={"target_fingerprint": fingerprint(model)}))
    for mark in ("0" * 64, 12):
        with pytest.raises(ModelError, match=rf"trained for org/other, .*fingerprint {str(mark)[:12]}, not [0-9a-f]"):
            bind(head(draftmux={"target": "org/other", "target_fingerprint": mark}))
    bind(head(draftmux="a text"))


def test_a_fingerprint_knows_weights_and_not_formats(model: Any) -> None:
    other, wide = copy.deepcopy(model), copy.deepcopy(model)
    assert fingerprint(other.to(torch.bfloat16)) == fingerprint(other.float()) == fingerprint(wide.float())
    other.get_input_embeddings().weight[3, 4] += 1
    assert fingerprint(other) != fingerprint(model)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("package:no_such_package/head", "names package no_such_package, which is not installed"),
        ("package:/head", "names package , which is not installed"),
        ("package:a.b/head", r"names package a\.b, which is not installed"),
        ("package:draftmux/no such folder", "package draftmux has no folder 'no such folder'"),
        ("package:draftmux/../draftmux", "package draftmux has no folder"),
        ("org/no-such-head", "neither a folder nor a repository on the hub that can be reached"),
        ("no folder!", "neither a folder nor a repository"),
    ],
)
def test_sources_that_are_missing(source: str, words: str, bind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=words) as caught:
        bind(source, taps=list(DEFAULT_TAPS))
    assert source in str(caught.value)


def test_a_head_in_a_package(head: Any, bind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_heads").mkdir()
    (tmp_path / "some_heads" / "__init__.py").write_text("raise RuntimeError('a package of parts is not imported')")
    Path(head(**NESTED)).rename(tmp_path / "some_heads" / "head")
    monkeypatch.syspath_prepend(tmp_path)
    _, bound = bind("package:some_heads/head")
    assert bound.needs.taps == taps(0, 3, 5)


def test_a_drafter_is_of_no_use_before_it_is_bound(head: Any) -> None:
    drafter: Any = Eagle3(head=head())
    with pytest.raises(PluginError, match="call `bind`"):
        drafter.begin(None)
    with pytest.raises(PluginError, match="call `bind`"):
        drafter.propose([])
