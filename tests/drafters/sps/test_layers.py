"""A target's first layers as its draft model: its own weights, adapters of the draft's own, and a target left alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftmux.backends.static.joining import JoinedLinear
from draftmux.backends.static.packing import PackedLinear
from draftmux.backends.taps import decoder_layers
from draftmux.drafters.sps.drafter import Sps
from draftmux.drafters.sps.layers import first_layers
from draftmux.errors import ModelError
from draftmux.generation import Generation
from draftmux.models.adapters import Adapted, read_adapter
from draftmux.models.fingerprint import fingerprint
from draftmux.protocols import Resources, Row
from draftmux.testing.harness import assemble, serve
from draftmux.testing.properties import check_taps
from draftmux.testing.reference import Ask
from draftmux.testing.targets import BACKENDS, MODELS, tiny_model
from draftmux.types import Draft, Tap

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
PATHS = ("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj", "lm_head")
CONFIG = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], "bias": "none"}
TAPS = (Tap(0, "resid_post"), Tap(1, "mlp_out"))
WriteAdapter = Callable[..., str]


def shallow(name: str, count: int) -> Any:
    """A copy of a tiny model that is built with fewer layers."""
    model = copy.deepcopy(tiny_model(name))
    base = getattr(model, model.base_model_prefix)
    layers = "h" if hasattr(base, "h") else "layers"
    setattr(base, layers, torch.nn.ModuleList(list(getattr(base, layers))[:count]))
    for config in (model.config, base.config):
        config.num_hidden_layers = count
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:count]
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits  # type: ignore[no-any-return]


def scored(target: Any) -> torch.Tensor:
    sequence = target.open([1, 2, 3]).sequence
    found: torch.Tensor = target.score([Row(sequence, 3, Draft.from_candidates([[4, 5], [6]]))])[0].logits.clone()
    target.close(sequence)
    return found


def tensors(seed: int = 0, paths: tuple[str, ...] = PATHS) -> dict[str, torch.Tensor]:
    """A and B of each path, as wide as the tiny llama's layers."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for path in paths:
        layer = tiny_model("llama").get_submodule(path)
        for name, shape in (("lora_A", (3, layer.in_features)), ("lora_B", (layer.out_features, 3))):
            found[f"base_model.model.{path}.{name}.weight"] = torch.randn(shape, generator=generator) / 4
    return found


@pytest.fixture
def write_adapter(tmp_path: Path) -> WriteAdapter:
    def write(config: Any = None, weights: dict[str, torch.Tensor] | None = None) -> str:
        (tmp_path / "adapter_config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
        save_file(tensors() if weights is None else weights, tmp_path / "adapter_model.safetensors")
        return str(tmp_path)

    return write


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_they_are_a_shallower_model_with_the_same_weights(make_target: Any, name: str, backend: str) -> None:
    target = make_target(backend, name=name)
    own = first_layers(target, 1)
    ours, theirs = dict(own.named_parameters()), dict(target.model.named_parameters())
    assert 0 < len(ours) < len(theirs)
    assert all(parameter.data_ptr() == theirs[path].data_ptr() for path, parameter in ours.items())
    assert len(decoder_layers(target.model)) == len(decoder_layers(tiny_model(name)))
    assert target.model.config.num_hidden_layers == tiny_model(name).config.num_hidden_layers
    beside = target.beside(own)
    sequence = beside.open(IDS[0].tolist()).sequence
    found = beside.score([Row(sequence, int(IDS[0, -1]), Draft.empty())])[0].logits[0]
    assert float((found - logits(shallow(name, 1))[0, -1]).abs().max()) < 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_target_is_bit_identical_before_and_after(
    make_target: Any, write_adapter: WriteAdapter, backend: str, dtype: torch.dtype
) -> None:
    """Packed or not, with an adapter or without."""
    target = make_target(backend, dtype)
    before, asked = scored(target), [Ask((1, 2, 3), Generation(max_new_tokens=12))]
    plain = serve(assemble(target), asked)["request"].finished.tokens
    for adapter in (None, write_adapter()):
        drafter = Sps(layers=1, depth=3, adapter=adapter).bind(Resources(backend=target))
        outcome = serve(assemble(target, {"sps": drafter}), asked)["request"].finished
        assert outcome.tokens == plain and outcome.metrics.drafted and torch.equal(scored(target), before)
    assert not any(isinstance(module, Adapted) for module in target.model.modules())


@pytest.mark.parametrize("backend", BACKENDS)
def test_taps_of_the_target_see_the_target_alone(make_target: Any, backend: str, write_adapter: WriteAdapter) -> None:
    target = make_target(backend, taps=TAPS)
    drafter: Any = Sps(layers=1, depth=3, adapter=write_adapter()).bind(Resources(backend=target))
    check_taps(target, TAPS, Ask((1, 2, 3, 4), Generation(max_new_tokens=12)), drafter)
    assert not target.recorder.states and not drafter.reader.target.recorder.taps


@pytest.mark.parametrize("count", [2, 3])
def test_all_layers_or_more_are_refused(make_target: Any, count: int) -> None:
    with pytest.raises(ModelError, match=f"layers: {count} asks for all of the target's 2 layers or more; give fewer"):
        first_layers(make_target(), count)


@pytest.mark.parametrize("rank_stabilised", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_adapter_is_what_merging_it_would_give(
    make_target: Any, write_adapter: WriteAdapter, backend: str, rank_stabilised: bool
) -> None:
    folder, merged = write_adapter({"use_rslora": rank_stabilised}), shallow("llama", 1)
    weights = tensors()
    for path in PATHS:
        a, b = (weights[f"base_model.model.{path}.lora_{name}.weight"].double() for name in "AB")
        merged.get_submodule(path).weight.data += (6 / (3**0.5 if rank_stabilised else 3)) * b @ a
    own = first_layers(make_target(backend), 1, folder)
    assert float((logits(own) - logits(merged)).abs().max()) < 1e-9
    assert float((logits(own) - logits(shallow("llama", 1))).abs().max()) > 1e-3


def test_packed_layers_are_adapted_too(make_target: Any, write_adapter: WriteAdapter) -> None:
    target, folder = make_target("static", torch.float32), write_adapter()
    wide = first_layers(make_target("static"), 1, folder)
    beside = target.beside(first_layers(target, 1, folder), self_check=False)
    sequence = beside.open(IDS[0].tolist()).sequence
    found = beside.score([Row(sequence, int(IDS[0, -1]), Draft.empty())])[0].logits[0]
    assert float((found - logits(wide)[0, -1]).abs().max()) < 1e-3


def test_terms_of_layers_that_read_one_tensor_are_packed_as_one(make_target: Any, write_adapter: WriteAdapter) -> None:
    inner = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}
    paths = tuple(f"model.layers.0.{block}.{name}" for block, names in inner.items() for name in names)
    target = make_target("static", torch.float32)
    beside = target.beside(first_layers(target, 1, write_adapter(weights=tensors(paths=paths))), self_check=False)
    adapted = [module for module in beside.model.modules() if isinstance(module, Adapted)]
    downs, ups = ([getattr(module, name) for module in adapted] for name in ("down", "up"))
    assert len(adapted) == 5 and all(isinstance(up, PackedLinear) for up in ups)
    assert all(isinstance(down, JoinedLinear) for down in downs) and len({id(down.joint) for down in downs}) == 2


@pytest.mark.filterwarnings("ignore")  # peft's own
@pytest.mark.parametrize("rank_stabilised", [False, True])
def test_an_adapter_that_peft_wrote_gives_peft_s_logits(
    make_target: Any, tmp_path: Path, rank_stabilised: bool
) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=4,
        lora_alpha=16,
        target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
        use_rslora=rank_stabilised,
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        adapted = peft.get_peft_model(shallow("llama", 1), config).double().eval()
    adapted.save_pretrained(tmp_path)
    assert len(load_file(tmp_path / "adapter_model.safetensors")) == 10
    own = first_layers(make_target(), 1, str(tmp_path))
    assert float((logits(own) - logits(adapted)).abs().max()) < 1e-9
    assert float((logits(own) - logits(shallow("llama", 1))).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"peft_type": "LOHA"}, "peft_type: LOHA"),
        ({"use_dora": True}, "use_dora: True"),
        ({"bias": "all"}, "bias: all"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 8}}, "alpha_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"trainable_token_indices": [3]}, "trainable_token_indices"),
        ({"lora_bias": True}, "lora_bias"),
        ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: pissa"),
    ],
)
def test_adapters_of_other_kinds_are_refused(write_adapter: WriteAdapter, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read_adapter(write_adapter(config))


def without(word: str) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors().items() if word not in name}


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (without("down_proj.lora_B"), "down_proj has lora_A or lora_B alone"),
        (tensors() | {"base_model.model.lm_head.lora_magnitude_vector": torch.ones(3)}, "not of a plain LoRA"),
        (tensors() | {"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(3, 3)}, "not of a plain LoRA"),
        (
            tensors(paths=("model.layers.1.mlp.up_proj",)),
            r"layers\.1\.mlp\.up_proj, which a model of 1 layers .* has not",
        ),
        ({name: torch.ones(3, 7) for name in tensors()}, "trained for another model"),
        ({name: torch.ones(5, 7) for name in tensors()}, "has rank 5, and adapter_config.json says r: 3"),
        ({}, "holds no tensors"),
        ({name.replace("q_proj", "z_proj"): t for name, t in tensors().items()}, r"z_proj is .*, the target's layer"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(
    make_target: Any, write_adapter: WriteAdapter, weights: dict[str, torch.Tensor], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        first_layers(make_target(), 1, write_adapter(None, weights))


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ('{"layers": 2}', "was trained for layers: 2, not 1; set `layers` to that"),
        ('{"target": "org/other", "target_fingerprint": "00"}', "was trained for org/other, whose weights are others"),
        ("[1]", "draftmux.json cannot be read"),
    ],
)
def test_adapters_of_ours_know_their_target(
    make_target: Any, write_adapter: WriteAdapter, kept: str, said: str
) -> None:
    target, folder = make_target(), write_adapter()
    mine = {"layers": 1, "target": "org/tiny", "target_fingerprint": fingerprint(target.model)}
    (Path(folder) / "draftmux.json").write_text(json.dumps(mine), "utf-8")
    first_layers(target, 1, folder)
    (Path(folder) / "draftmux.json").write_text(kept, "utf-8")
    with pytest.raises(ModelError, match=said):
        first_layers(target, 1, folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_is_named(write_adapter: WriteAdapter, name: str) -> None:
    folder = write_adapter()
    (Path(folder) / name).unlink()
    with pytest.raises(ModelError, match=f"has no {name}; it is what PEFT's save_pretrained writes"):
        read_adapter(folder)
