from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import logging

from draftmux.errors import ModelError
from draftmux.models.checkpoint import ALIGNMENT, quietly
from draftmux.models.load import load_model, load_tokenizer, pick_device
from draftmux.models.source import ModelSpec

WORDS = ["<unk>", "<eos>", "draft", "accept", "root", "<end>"]
LLAMA = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GPT2 = {"vocab_size": 32, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}


class Sentinel:
    """An object whose unpickling leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def save(model: Any, folder: Path) -> Path:
    with quietly():
        model.save_pretrained(folder)
    return folder


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Any:
    """A random Llama in float16."""
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**LLAMA)).half()


@pytest.fixture
def folder(model: Any, tmp_path: Path) -> Path:
    """The random Llama and a tokenizer of six words, saved."""
    path = save(model, tmp_path / "model")
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>")
    tokenizer.save_pretrained(path)
    return path


def spec(path: Path, **options: Any) -> ModelSpec:
    return ModelSpec(source=str(path), **options)


def test_the_model_that_was_saved(folder: Path, model: Any) -> None:
    loaded, eos_ids = load_model(spec(folder))
    assert eos_ids == {1}
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert loaded.dtype == torch.float16
    saved = model.state_dict()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in loaded.state_dict().items())


@pytest.mark.parametrize("padding", [0, 8, 24])
def test_weights_start_at_aligned_addresses(folder: Path, padding: int) -> None:
    """Wherever they start in the file: a longer header shifts them."""
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt", "padding": "x" * padding})
    loaded = load_model(spec(folder, device="cpu")).model
    assert {parameter.data_ptr() % ALIGNMENT for parameter in loaded.parameters()} == {0}
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.state_dict().items())


def test_dtype(folder: Path) -> None:
    assert load_model(spec(folder, dtype="float64")).model.dtype == torch.float64


def test_tokenizer(folder: Path) -> None:
    assert load_tokenizer(spec(folder)).encode("draft") == [2]


def test_every_named_end_counts(folder: Path) -> None:
    edit_json(folder / "generation_config.json", eos_token_id=[3, 4])
    edit_json(folder / "config.json", eos_token_id=2)
    edit_json(folder / "tokenizer_config.json", eos_token="<end>")
    assert load_model(spec(folder)).eos_ids == {2, 3, 4, 5}


def test_no_named_end(folder: Path) -> None:
    for name in ("generation_config.json", "config.json"):
        edit_json(folder / name, eos_token_id=None)
    for file in folder.glob("token*"):
        file.unlink()
    assert load_model(spec(folder)).eos_ids == frozenset()


@pytest.mark.parametrize(
    "make", [lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)), lambda: GPT2LMHeadModel(GPT2Config(**GPT2))]
)
def test_a_folder_without_a_tokenizer(make: Callable[[], Any], tmp_path: Path) -> None:
    path = save(make(), tmp_path / "model")
    assert load_model(spec(path)).eos_ids == {1}
    with pytest.raises(ModelError, match=r"tokenizer"):
        load_tokenizer(spec(path))


def test_pickled_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Sentinel(tmp_path / "unpickled")))
    with pytest.raises(ModelError, match=r"pytorch_model\.bin and no safetensors; weights are never unpickled"):
        load_model(spec(folder))
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("shard", ["model.bin", "../model.bin"])
def test_an_index_that_names_pickles_is_refused(folder: Path, shard: str) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "other.safetensors")
    torch.save(weights, folder / shard)
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, shard)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="weights are never unpickled"):
        load_model(spec(folder))


CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({sentinel!r}).touch()
class Strange(LlamaForCausalLM):
    pass
class StrangeConfig(LlamaConfig):
    model_type = {kind!r}
Strange.config_class = StrangeConfig
"""


def bring_code(folder: Path, kind: str, sentinel: Path) -> None:
    """Give the folder code of its own for config, model and tokenizer."""
    names = {"AutoConfig": "own.StrangeConfig", "AutoModelForCausalLM": "own.Strange"}
    edit_json(folder / "config.json", auto_map=names, model_type=kind, architectures=["Strange"])
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Strange", "own.Strange"]})
    (folder / "own.py").write_text(CODE.format(sentinel=str(sentinel), kind=kind))


@pytest.fixture
def no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("the user was asked"))


def test_code_in_a_checkpoint_is_not_run(folder: Path, tmp_path: Path, no_prompt: None) -> None:
    bring_code(folder, "strange", tmp_path / "ran")
    with pytest.raises(ModelError, match=r"if you trust it, set trust_remote_code: true for this model"):
        load_model(spec(folder))
    assert load_tokenizer(spec(folder)).encode("root") == [4]  # its class is one of transformers' own
    edit_json(folder / "tokenizer_config.json", tokenizer_class="StrangeTokenizer")
    with pytest.raises(ModelError, match=r"if you trust it, set trust_remote_code: true for this model"):
        load_tokenizer(spec(folder))
    assert not (tmp_path / "ran").exists()


def test_code_that_shadows_a_known_model_is_not_run(folder: Path, tmp_path: Path, no_prompt: None) -> None:
    bring_code(folder, "llama", tmp_path / "ran")
    edit_json(folder / "config.json", architectures=["LlamaForCausalLM"])
    assert type(load_model(spec(folder)).model) is LlamaForCausalLM
    assert not (tmp_path / "ran").exists()


def test_code_is_run_when_the_user_says_so(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    bring_code(folder, "strange", tmp_path / "ran")
    edit_json(folder / "tokenizer_config.json", auto_map={})
    assert type(load_model(spec(folder, trust_remote_code=True)).model).__name__ == "Strange"
    assert (tmp_path / "ran").exists()


OTHER_KINDS = [
    lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, decoder_start_token_id=0)
    ),
    lambda: BertForMaskedLM(
        BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    ),
    lambda: LlamaModel(LlamaConfig(**LLAMA)),
]


@pytest.mark.parametrize("make", OTHER_KINDS)
def test_other_kinds_of_models_are_refused(make: Callable[[], Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a causal language model"):
        load_model(spec(save(make(), tmp_path / "model")))


def test_missing_weights_do_not_stay_random(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"lacks 1 weights of a LlamaForCausalLM \(lm_head\.weight"):
        load_model(spec(folder))


@pytest.mark.parametrize(
    ("make", "counts", "first"),
    [
        (
            lambda: LlamaForCausalLM(LlamaConfig(**LLAMA | {"num_hidden_layers": 12})),
            "num_hidden_layers",
            "model.layers.2.",
        ),
        (lambda: GPT2LMHeadModel(GPT2Config(**GPT2 | {"n_layer": 12})), "n_layer", "transformer.h.2."),
    ],
)
def test_layers_that_the_config_does_not_count_are_not_cut_off(
    make: Callable[[], Any], counts: str, first: str, tmp_path: Path
) -> None:
    path = save(make(), tmp_path / "model")
    assert len(load_model(spec(path)).model.state_dict()) > 100
    edit_json(path / "config.json", **{counts: 2, "layer_types": None})
    with pytest.raises(
        ModelError, match=r"model holds 12 layers, but its config counts 2; .* too many is (\S+);"
    ) as found:
        load_model(spec(path))
    assert f" is {first}" in str(found.value)


def test_layers_that_predict_further_tokens_may_be_left_out(tmp_path: Path) -> None:
    path = save(LlamaForCausalLM(LlamaConfig(**LLAMA)), tmp_path / "model")
    edit_json(path / "config.json", num_hidden_layers=1, num_nextn_predict_layers=1)
    assert len(load_model(spec(path)).model.model.layers) == 1


def test_other_weights_that_the_model_has_no_use_for_do_no_harm(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    extra = dict.fromkeys(("mtp.layers.7.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"), torch.ones(2))
    save_file(weights | {name: tensor.clone() for name, tensor in extra.items()}, folder / "model.safetensors")
    assert len(load_model(spec(folder)).model.model.layers) == 2


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"{nonsense"])
def test_a_damaged_folder(folder: Path, name: str, content: bytes | None) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=r"could not be loaded: .*A model folder holds config\.json"):
        load_model(spec(folder))


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there(folder: Path, device: str) -> None:
    with pytest.raises(ModelError, match=f"device '{device}' cannot be used: .*write auto, cpu"):
        load_model(spec(folder, device=device))


def test_auto_takes_a_gpu_if_there_is_one() -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_loading_is_silent_and_leaves_no_trace(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISABLE_SAFETENSORS_CONVERSION", raising=False)
    environment, unpickle, verbosity, hook = dict(os.environ), torch.load, logging.get_verbosity(), current_hook()
    edit_json(folder / "config.json", eos_token_id=99)  # outside the vocabulary, of which transformers warns
    load_model(spec(folder))
    assert (capfd.readouterr(), caplog.messages) == (("", ""), [])
    assert (torch.load, logging.get_verbosity(), current_hook()) == (unpickle, verbosity, hook)
    assert dict(os.environ) == environment
    edit_json(folder / "config.json", eos_token_id=98)  # another one, since it warns once of each
    AutoModelForCausalLM.from_pretrained(folder)
    assert "Loading weights" in capfd.readouterr().err
    assert any("eos_token_id must be" in message for message in caplog.messages)


def current_hook() -> object:
    hook = logging.set_tqdm_hook(None)
    logging.set_tqdm_hook(hook)
    return hook


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An offline hub cache that holds nothing yet."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put_on_hub(hub: Path, repo: str, folder: Path, revision: str) -> None:
    commit = "c0ffee" * 6 + "beef"
    home = hub / f"models--{repo.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / revision).write_text(commit)
    (home / "snapshots").mkdir()
    folder.rename(home / "snapshots" / commit)


def test_a_hub_model(folder: Path, hub: Path) -> None:
    put_on_hub(hub, "org/name", folder, "v1")
    assert load_model(ModelSpec(source="org/name", revision="v1")).model.dtype == torch.float16
    assert load_tokenizer(ModelSpec(source="org/name", revision="v1")).eos_token == "<eos>"
    with pytest.raises(ModelError, match="'org/name' could not be loaded"):
        load_model(ModelSpec(source="org/name", revision="v2"))


@pytest.mark.parametrize("source", ["org/other", "org/other#model.gguf"])
def test_a_hub_model_that_cannot_be_had(hub: Path, source: str) -> None:
    for load in (load_model, load_tokenizer):
        with pytest.raises(ModelError, match=f"'{source}' could not be loaded: .*Check its name, the network"):
            load(ModelSpec(source=source))
