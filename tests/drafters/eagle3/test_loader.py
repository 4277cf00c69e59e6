"""A head that is not understood, incomplete, or made for another target is refused by name; nothing in it is run."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import frozen
from safetensors.torch import save_file

from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.drafters.eagle3.drafter import Eagle3
from draftmux.drafters.eagle3.format import DEFAULT_TAPS, IDS
from draftmux.errors import ModelError
from draftmux.protocols import Resources

Config = dict[str, Any]
Tensors = dict[str, Any]
Spoil = Callable[[Config, Tensors], Any]
LLAMA: Config = {"architectures": ["LlamaForCausalLM"]}
Q_PROJ, FC, HEADS, D2T = "layers.0.self_attn.q_proj.weight", "fc.weight", "lm_head.weight", "d2t"


@frozen
class Bound:
    """Writes a head in a folder and binds it to one target."""

    target: Any
    folder: Path
    plain: Any
    write: Callable[..., str]

    def __call__(self, spoil: Spoil | None = None, **options: Any) -> Any:
        config, tensors = {**LLAMA, **self.plain.config}, dict(self.plain.tensors)
        if spoil is not None:
            spoil(config, tensors)
        return self.load(self.write(self.folder, config, tensors), **options)

    def load(self, head: str, **options: Any) -> Any:
        return Eagle3(head=head, self_test=False, **options).bind(Resources(backend=self.target))


@pytest.fixture(scope="module")
def target(model: Any) -> Any:
    return TransformersBackend(self_check=False).over(copy.deepcopy(model), taps=DEFAULT_TAPS)


@pytest.fixture
def bound(target: Any, random_plain: Any, write: Any, tmp_path: Path) -> Bound:
    return Bound(target, tmp_path, random_plain(), write)


def test_the_head_that_the_others_spoil_is_sound(bound: Bound) -> None:
    assert len(bound().vocabulary.ids) == 16


def ids_for_offsets(config: Config, tensors: Tensors) -> None:
    tensors[D2T] = torch.arange(16) + tensors[D2T]


def small_ids_for_offsets(config: Config, tensors: Tensors) -> None:
    """Read as offsets they are in range and different; only t2d tells."""
    tensors[D2T] = torch.arange(16) + 2
    tensors["t2d"] = torch.isin(torch.arange(40), tensors[D2T])


def other_mask(config: Config, tensors: Tensors) -> None:
    tensors["t2d"] = tensors["t2d"].roll(1)


def repeated_id(config: Config, tensors: Tensors) -> None:
    tensors[D2T][1] = tensors[D2T][0] - 1


def drop(*names: str) -> Spoil:
    return lambda config, tensors: [tensors.pop(name) for name in names]


def put(**tensor: Any) -> Spoil:
    return lambda config, tensors: tensors.update({name.replace("__", "."): value for name, value in tensor.items()})


def cut(name: str, rows: int | None = None, columns: int | None = None) -> Spoil:
    def spoil(config: Config, tensors: Tensors) -> None:
        tensors[name] = tensors[name][:rows, :columns].contiguous()

    return spoil


def say(**keys: Any) -> Spoil:
    return lambda config, tensors: config.update(keys)


def speculators(**inner: Any) -> Spoil:
    return say(architectures=["Eagle3Speculator"], speculators_model_type="eagle3", transformer_layer_config=inner)


ROWS = torch.zeros(16, 24, dtype=torch.float64)
SPOILT: dict[str, tuple[Spoil, str]] = {
    "absolute ids": (ids_for_offsets, "d2t must hold offsets.*they look like ids"),
    "small absolute ids": (small_ids_for_offsets, "d2t and t2d name different tokens"),
    "another mask": (other_mask, "d2t and t2d name different tokens"),
    "an id twice": (repeated_id, "d2t must hold offsets.*16 different ids below 40; they are wrong"),
    "no d2t": (drop(D2T), "it has 16 tokens and the target 40, and no d2t"),
    "a short d2t": (put(d2t=torch.arange(15)), r"d2t must hold 16 integers, got \(15,\)"),
    "fractions in d2t": (put(d2t=torch.zeros(16)), "d2t must hold 16 integers"),
    "no fc": (drop(FC), r"missing tensor fc\.weight"),
    "no q_proj": (drop(Q_PROJ), r"missing tensor layers\.0\.self_attn\.q_proj"),
    "no MLP": (drop("layers.0.mlp.gate_proj.weight"), r"missing tensor layers\.0\.mlp\.gate_proj"),
    "no hidden_norm": (drop("layers.0.hidden_norm.weight"), r"missing tensor layers\.0\.hidden_norm"),
    "no norm": (drop("norm.weight"), r"missing tensor norm\.weight"),
    "no lm_head": (drop(HEADS), "it has|d2t must hold"),
    "an unknown tensor": (put(gate__weight=ROWS), r"unknown tensor gate\.weight"),
    "an input_norm without its flag": (put(input_norm__weight=ROWS[0]), r"unknown tensor input_norm\.weight"),
    "a flag without its norms": (say(fc_norm=True), r"missing tensor fc_norm\.0\.weight"),
    "a layer left out": (put(layers__2__input_layernorm__weight=torch.zeros(32)), r"unknown tensor layers\.2\.input"),
    "a tensor twice": (put(midlayer__hidden_norm__weight=ROWS[0]), r"tensor layers\.0\.hidden_norm\.weight twice"),
    "a parallel head": (say(mask_hidden=True), "mask_hidden is set"),
    "a parallel head's token": (say(pard_token=7), "pard_token is set"),
    "a parallel head's mask": (say(eagle_config={"mask_token_id": 7}), "mask_token_id is set"),
    "a window": (say(sliding_window=64), "sliding_window is set"),
    "a window, nested": (speculators(sliding_window=64), "sliding_window is set"),
    "another activation": (say(hidden_act="gelu"), "hidden_act is gelu"),
    "another activation, nested": (speculators(hidden_act="gelu"), "hidden_act is gelu"),
    "another architecture": (say(architectures=["Eagle3DeepseekV3ForCausalLM"]), "Eagle3DeepseekV3ForCausalLM is not"),
    "no architecture": (say(architectures=5), "architecture 5 is not understood"),
    "another speculator": (say(speculators_model_type="dflash"), "speculators_model_type is 'dflash'"),
    "EAGLE-2": (say(eagle_config={"use_aux_hidden_state": False}), "use_aux_hidden_state is false"),
    "two norms before fc": (say(fc_norm=True, norm_before_fc=True), "norm_before_fc and fc_norm exclude each other"),
    "no table": (say(eagle_config=[1, 2]), "eagle_config must be a table"),
    "ids from 0 at top level": (say(**{IDS: [0, 2, 4]}), "at top level counts layers passed.*different numbers from 1"),
    "an id of a tap twice": (say(**{IDS: [2, 2, 4]}), "must list different numbers"),
    "ids that are no list": (say(eagle_config={IDS: 3}), "must list different numbers from 0 on, got 3"),
    "too few taps": (say(**{IDS: [2, 4]}), "fuses 96 numbers a position; 2 hidden states of this target are 64"),
    "another target's width": (cut(FC, columns=48), "fuses 48 numbers a position"),
    "another target's width, by config": (say(target_hidden_size=64), "trained for another target"),
    "a first layer without embedding": (cut(Q_PROJ, columns=32), "q_proj reads 32 numbers; .* are 64"),
    "heads that do not divide": (say(num_attention_heads=5), "num_attention_heads is 5"),
    "no heads": (say(num_attention_heads=0), "num_attention_heads is 0"),
    "keys of half a head": (cut("layers.0.self_attn.k_proj.weight", rows=4), "k_proj"),
    "a flat fc": (put(fc__weight=torch.zeros(8)), r"fc\.weight"),
    "a flat q_proj": (put(layers__0__self_attn__q_proj__weight=torch.zeros(8)), "q_proj"),
    "a narrow v_proj": (cut("layers.0.self_attn.v_proj.weight", rows=8), r"v_proj\.weight is \(8, 64\).*\(16, 64\)"),
    "a short norm": (put(norm__weight=torch.ones(31)), r"norm\.weight is \(31,\).*\(32,\)"),
    "a small embedding": (put(embed_tokens__weight=torch.zeros(39, 32)), "embeds 39 tokens, the target has 40"),
    "a partial rotation": (say(rope_parameters={"rope_type": "default", "partial_rotary_factor": 0.5}), "partial"),
    "an unknown rotation": (say(rope_scaling={"rope_type": "spiral", "factor": 2.0}), "config is not possible|spiral"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_refused(name: str, bound: Bound) -> None:
    spoil, words = SPOILT[name]
    with pytest.raises(ModelError, match=words) as caught:
        bound(spoil)
    assert str(bound.folder) in str(caught.value)


def test_an_embedding_of_another_width_cannot_be_lent(bound: Bound, random_plain: Any) -> None:
    narrow = Bound(bound.target, bound.folder, random_plain(size=24), bound.write)
    with pytest.raises(ModelError, match=r"has no embed_tokens\.weight, and the target's is of width 32, not 24"):
        narrow()


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"\xff\xfe\x00", b"[" * 100_000, b"null"])
def test_a_config_that_is_no_table(content: bytes, bound: Bound) -> None:
    bound()
    (bound.folder / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json is no JSON config of a head"):
        bound.load(str(bound.folder))


def test_missing_files(bound: Bound) -> None:
    bound()
    (bound.folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has neither model\.safetensors nor pytorch_model\.bin"):
        bound.load(str(bound.folder))
    (bound.folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        bound.load(str(bound.folder), taps=list(DEFAULT_TAPS))


class Trap:
    """Unpickled by a careless reader, it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def test_a_pickle_is_not_run(bound: Bound) -> None:
    bound()
    marker = bound.folder / "it ran"
    (bound.folder / "model.safetensors").unlink()
    torch.save({FC: Trap(marker)}, bound.folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin cannot be read as weights"):
        bound.load(str(bound.folder))
    assert not marker.exists()
    pickle.loads(pickle.dumps(Trap(marker)))
    assert marker.exists(), "the trap is harmless, so the test shows nothing"


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"fc.weight": 3}])
def test_a_pickle_of_something_else(content: Any, bound: Bound) -> None:
    bound()
    (bound.folder / "model.safetensors").unlink()
    torch.save(content, bound.folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="holds something else than named tensors"):
        bound.load(str(bound.folder))


@pytest.mark.parametrize("size", [0, 4, 100, 5000])
def test_truncated_weights(size: int, bound: Bound) -> None:
    bound()
    path = bound.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read as weights"):
        bound.load(str(bound.folder))


def test_shards(bound: Bound) -> None:
    bound()
    (bound.folder / "model.safetensors").unlink()
    names, index = sorted(bound.plain.tensors), bound.folder / "model.safetensors.index.json"
    place = {name: f"part-{at % 2}.safetensors" for at, name in enumerate(names)}
    index.write_text(json.dumps({"weight_map": place}))
    for part in set(place.values()):
        own = {name: tensor for name, tensor in bound.plain.tensors.items() if place[name] == part}
        save_file(own, bound.folder / part)
    assert torch.equal(bound.load(str(bound.folder)).reader.target.model.fc.weight, bound.plain.tensors[FC])
    (bound.folder / "part-1.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks part-1\.safetensors"):
        bound.load(str(bound.folder))
    for broken in ("{", "[]", "{}", '{"weight_map": 3}'):
        index.write_text(broken)
        with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json"):
            bound.load(str(bound.folder))
