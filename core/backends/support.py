"""Which architectures can run draft trees: refused by what their configuration says, then by measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

MOVING_ROPE = {"longrope", "dynamic"}
TREES = {"full_attention", "sliding_attention"}


@frozen
class Layout:
    """Attention of a model: the kind of every layer, its window if any, and whether it takes one mask per kind."""

    kind: tuple[str, ...]  # of every layer
    window: int | None
    mask_per_kind: bool

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return len(self.kind)

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of layer it has."""
        return frozenset(self.kind)

    def window_of(self, kind: str) -> int | None:
        """How many positions a layer of that kind sees, itself included; None means all."""
        return self.window if kind == "sliding_attention" else None


def layout(model: Any) -> Layout:
    """Read the configuration; ModelError when some layer's state cannot be rewound or seen as a tree."""
    config = model.config.get_text_config(decoder=True)
    name = type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(f"{name} is an encoder-decoder; draftmux decodes causal language models")
    if getattr(model, "_is_stateful", False):
        raise ModelError(
            f"{name} carries a recurrent state, which cannot be rewound when a draft is rejected; choose a target "
            f"whose layers are all attention"
        )
    declared = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    count = config.num_hidden_layers
    kind = tuple(declared or ["full_attention" if window is None else "sliding_attention"] * count)[:count]
    kinds = set(kind)
    if kinds - TREES:
        odd = ", ".join(sorted(kinds - TREES))
        raise ModelError(
            f"{name} has layers of kind {odd}; draft trees need full or sliding-window attention throughout"
        )
    if "reuse" in (getattr(config, "kv_sharing_modes", None) or ()) or getattr(config, "num_kv_shared_layers", None):
        raise ModelError(
            f"{name} shares keys and values between layers; the cache of draft trees does not support that yet"
        )
    if "sliding_attention" in kinds and not window:
        raise ModelError(f"{name} has sliding-window layers but its configuration gives no window")
    scaled = _rope_types(getattr(config, "rope_parameters", None)) & MOVING_ROPE
    if scaled:
        raise ModelError(
            f"{name} has rotary embeddings of type {', '.join(sorted(scaled))}, whose frequencies follow the longest "
            f"position of a pass, so a draft would change what other rows see; choose a target with fixed frequencies"
        )
    return Layout(kind, window, declared is not None and len(kinds) > 1)


def _rope_types(parameters: Any) -> set[str]:
    """Types of rotary embedding in a configuration, which may hold one set of parameters per kind of layer."""
    if not isinstance(parameters, Mapping):
        return set()
    nested = set().union(*(_rope_types(value) for value in parameters.values()))
    return nested | ({str(parameters["rope_type"])} if parameters.get("rope_type") else set())


def tree_error(tree: Tensor, sequential: Tensor) -> float:
    """How far logits of tree passes `(n, V)` are from sequential decoding's: the worst row's relative error."""
    reference = sequential.double() - sequential.double().mean(-1, keepdim=True)
    error = (tree.double() - sequential.double()).square().mean(-1).sqrt()
    return float((error / reference.square().mean(-1).sqrt().clamp_min(1e-12)).max())


def tolerance(dtype: torch.dtype) -> float:
    """Largest believable relative rounding error of a row. SmolLM2 in bfloat16: sound 0.1, one KV row off 0.45."""
    return {torch.float64: 1e-6, torch.float32: 1e-3}.get(dtype, 0.25)
