"""What the config of an EAGLE-3 checkpoint says: whose layout it is, the flags, and which hidden states it reads.

Layouts: SafeAILab/EAGLE, vllm-project/speculators, sgl-project/SpecForge, Tencent/AngelSlim, NVIDIA ModelOpt. The same
key means different layers in different places, so ids are resolved by where they stand. Reads JSON and no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from draftmux.errors import ModelError
from draftmux.models.parts import part_file
from draftmux.types import MIDDLE, Tap

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "config.json"
IDS = "eagle_aux_hidden_state_layer_ids"
# Before layers 2, L // 2 and L - 3: outputs of the layers before these.
DEFAULT_TAPS = (Tap(1, "resid_post"), Tap(MIDDLE - 1, "resid_post"), Tap(-4, "resid_post"))
ARCHITECTURES = {
    "LlamaForCausalLM": "SafeAILab",
    "LlamaForCausalLMEagle3": "SpecForge",
    "Eagle3LlamaForCausalLM": "AngelSlim",
    "Eagle3Qwen3ForCausalLM": "AngelSlim",
    "Eagle3Speculator": "speculators",
    "Eagle3DraftModel": "speculators",
}
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "attention_bias")
SAME = {"use_aux_norm": "fc_norm"}  # SGLang's word for it
SIZES = {
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "attention_bias",
    "hidden_act",
}
# Set in heads that work as EAGLE-3 does; any other flag that is set may mean other equations.
HARMLESS = {
    *("use_cache", "use_aux_hidden_state", "tie_word_embeddings", "return_dict", "add_cross_attention"),
    *("use_input_layernorm_in_first_layer", "use_last_layernorm", "has_lm_head"),
}
# Flags of relatives of EAGLE-3 that would need other equations: refused if they are set.
UNKNOWN = {
    "mask_hidden": "a parallel head (P-EAGLE)",
    "pard_token": "a parallel head",
    "mask_token_id": "a parallel head",
    "mlp_bias": "biases in the MLP",
    "use_mtp_layernorm": "an MTP head",
    "use_sliding_window": "attention in a window",
}


@frozen
class Format:
    """A config, understood: layout, sizes of a Llama layer, flags, hidden states, and what had to be assumed."""

    layout: str
    sizes: Mapping[str, Any]
    flags: Mapping[str, bool]
    taps: tuple[Tap, ...]
    draft_vocab_size: int | None
    target_hidden_size: int | None
    assumed: Sequence[str]

    def __str__(self) -> str:
        """One line for a log."""
        flags = ", ".join(name for name, value in self.flags.items() if value) or "no flags"
        return f"{self.layout} layout, hidden states {', '.join(map(str, self.taps))}, {flags}"


def known_taps(head: str, revision: str | None, download: bool = False) -> tuple[Tap, ...]:
    """The hidden states that a head reads, as its config says; the usual ones while there is no config at hand."""
    path = part_file(head, CONFIG, revision, download)
    return DEFAULT_TAPS if path is None else read_format(path).taps


def read_format(path: Path) -> Format:
    """Understand a config; ModelError for what is not an EAGLE-3 head, or a relative that works differently."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no JSON config of a head: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is no JSON config of a head: it holds a {type(config).__name__}, no table")
    return _Reader(path, config).format()


@frozen
class _Reader:
    path: Path
    config: Mapping[str, Any]
    assumed: list[str] = field(factory=list)

    def format(self) -> Format:
        layout, nested = self._layout(), self._table("eagle_config")
        sizes = {**self.config, **self._table("transformer_layer_config")} if layout == "speculators" else self.config
        self._refuse_relatives(nested, sizes)
        return Format(
            layout,
            {name: sizes[name] for name in sorted(SIZES & sizes.keys()) if sizes[name] is not None},
            self._flags(layout, nested),
            self._taps(nested),
            self.config.get("draft_vocab_size"),
            self.config.get("target_hidden_size"),
            self.assumed,
        )

    def _table(self, key: str) -> Mapping[str, Any]:
        value = self.config.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise ModelError(f"{self.path}: {key} must be a table, got {value!r}")
        return value or {}

    def _layout(self) -> str:
        kind = self.config.get("speculators_model_type")
        if kind is not None:
            if kind != "eagle3":
                raise ModelError(f"{self.path}: speculators_model_type is '{kind}'; only eagle3 heads are understood")
            return "speculators"
        names = self.config.get("architectures") or ["LlamaForCausalLM"]
        name = names[0] if isinstance(names, list) else names
        if not isinstance(name, str) or name not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise ModelError(f"{self.path}: architecture {name} is not understood; known are {known}")
        if "eagle_config" in self.config and name == "LlamaForCausalLM":
            return "ModelOpt"
        return ARCHITECTURES[name]

    def _refuse_relatives(self, nested: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
        if nested.get("use_aux_hidden_state") is False:
            raise ModelError(f"{self.path}: use_aux_hidden_state is false: an EAGLE-1 or -2 head, not EAGLE-3")
        for key, meaning in UNKNOWN.items():
            if sizes.get(key) or nested.get(key):
                raise ModelError(f"{self.path}: {key} is set, which means {meaning}; such heads are not supported")
        if sizes.get("sliding_window") and sizes.get("use_sliding_window", True):
            raise ModelError(f"{self.path}: sliding_window is set; heads that attend in a window are not supported")
        positions = sizes.get("max_position_embeddings")
        if positions is not None and (type(positions) is not int or positions < 1):
            raise ModelError(f"{self.path}: max_position_embeddings must be a positive integer, got {positions!r}")
        known = {*FLAGS, *SAME, *HARMLESS}
        odd = [key for key, value in {**sizes, **nested}.items() if value is True and key not in known]
        if odd:
            raise ModelError(f"{self.path}: {odd[0]} is true, and what that means for a head is not known here")
        if sizes.get("hidden_act", "silu") != "silu":
            raise ModelError(f"{self.path}: hidden_act is {sizes['hidden_act']}; only silu is supported")

    def _flags(self, layout: str, nested: Mapping[str, Any]) -> dict[str, bool]:
        given = {**nested, **self.config}
        flags = {name: bool(given.get(name, False)) for name in FLAGS}
        for other, name in SAME.items():
            flags[name] = flags[name] or bool(given.get(other, False))
        if flags["norm_before_fc"] and flags["fc_norm"]:
            raise ModelError(f"{self.path}: norm_before_fc and fc_norm exclude each other; the head cannot be both")
        if layout == "speculators" and "norm_before_residual" not in given:
            self.assumed.append("norm_before_residual: false, which the config leaves out (vLLM takes it for true)")
        if flags["norm_output"] and layout != "speculators" and not flags["fc_norm"]:
            flags["norm_output"] = False  # SpecForge's word for the norm before the output layer
            self.assumed.append("norm_output is taken for the norm before the output layer, which is always there")
        return flags

    def _taps(self, nested: Mapping[str, Any]) -> tuple[Tap, ...]:
        if (outer := self.config.get(IDS)) is not None:
            return self._resolved(outer, 1, f"{IDS} at top level counts layers passed")
        if (inner := nested.get(IDS)) is not None:
            return self._resolved(inner, 0, f"{IDS} in eagle_config counts from layer 0, whose output is read")
        if (listed := self.config.get("target_layer_ids")) is not None:
            return self._resolved(listed, 0, "target_layer_ids counts from layer 0, whose output is read")
        self.assumed.append("hidden states before layers 2, L // 2 and L - 3, since the config names none")
        return DEFAULT_TAPS

    def _resolved(self, ids: Any, offset: int, rule: str) -> tuple[Tap, ...]:
        sound = isinstance(ids, list) and ids and all(type(number) is int and number >= offset for number in ids)
        if not sound or len(set(ids)) < len(ids):
            raise ModelError(f"{self.path}: {rule}, so it must list different numbers from {offset} on, got {ids!r}")
        self.assumed.append(rule)
        return tuple(Tap(number - offset, "resid_post") for number in ids)
