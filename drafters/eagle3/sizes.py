"""Sizes of a head's layers, by its tensors where they say it, by its config where they do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attrs import frozen
from transformers import LlamaConfig

from draftmux.drafters.eagle3.model import HeadShape, rotary
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from draftmux.drafters.eagle3.format import Format


@frozen(eq=False)
class Fit:
    """What of the target a head must fit, and may share."""

    hidden_size: int
    vocab_size: int
    positions: int  # that the target was built for
    taps: int
    embedding: Any
    output: Any

    @classmethod
    def of(cls, model: Any, taps: int) -> Fit:
        """Of a loaded target."""
        config = model.config.get_text_config(decoder=True)
        own = (model.get_input_embeddings(), model.get_output_embeddings())
        positions = getattr(config, "max_position_embeddings", None) or 0
        return cls(config.hidden_size, config.vocab_size, positions, taps, *own)


def sizes(source: str, form: Format, weights: Mapping[str, Tensor], fit: Fit) -> tuple[LlamaConfig, HeadShape]:
    """A config of the head's layers, and what they have beyond it; ModelError naming what does not fit."""
    size, fused = _matrix(source, weights, "fc.weight")
    width = form.target_hidden_size or fit.hidden_size
    if width != fit.hidden_size or fused != fit.taps * width:
        raise ModelError(
            f"head '{source}' fuses {fused} numbers a position; {fit.taps} hidden states of this target are "
            f"{fit.taps * fit.hidden_size}. It was trained for another target, or reads another number of states"
        )
    lent = {name: fit.vocab_size for name in ("lm_head", "embed_tokens") if f"{name}.weight" not in weights}
    rows = {
        name: lent.get(name) or _matrix(source, weights, f"{name}.weight")[0] for name in ("lm_head", "embed_tokens")
    }
    if form.draft_vocab_size not in (None, rows["lm_head"]):
        raise ModelError(
            f"head '{source}': draft_vocab_size is {form.draft_vocab_size}, and lm_head has {rows['lm_head']} rows"
        )
    own = {
        "hidden_size": size,
        **_heads(source, form, weights, size),
        "num_hidden_layers": len({match[1] for name in weights if (match := re.match(r"layers\.(\d+)\.", name))}),
        "intermediate_size": _matrix(source, weights, "layers.0.mlp.gate_proj.weight")[0],
        "vocab_size": rows["embed_tokens"],
        "attention_bias": "layers.0.self_attn.q_proj.bias" in weights,
        "tie_word_embeddings": False,
        # Heads are trained on short texts and used on long ones: rotary positions go on.
        "max_position_embeddings": max(fit.positions, form.sizes.get("max_position_embeddings") or 0) or 2048,
    }
    flags = {name: form.flags[name] for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")}
    qk_norm = "layers.0.self_attn.q_norm.weight" in weights
    shape = HeadShape(width, rows["lm_head"], taps=fit.taps, qk_norm=qk_norm, **flags)
    return _config(source, {**form.sizes, **own}), shape


def _matrix(source: str, weights: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    if name not in weights:
        raise ModelError(f"head '{source}': missing tensor {name}")
    if weights[name].ndim != 2:
        raise ModelError(f"head '{source}': {name} is {tuple(weights[name].shape)}, it must be a matrix")
    return tuple(weights[name].shape)


def _heads(source: str, form: Format, weights: Mapping[str, Tensor], size: int) -> dict[str, int]:
    """Heads of attention. Their number is in the config alone."""
    queries, inputs = _matrix(source, weights, "layers.0.self_attn.q_proj.weight")
    if inputs != 2 * size:
        raise ModelError(
            f"head '{source}': its first q_proj reads {inputs} numbers; embedding and feature are {2 * size}"
        )
    heads = form.sizes.get("num_attention_heads")
    if not isinstance(heads, int) or heads < 1 or queries % heads:
        raise ModelError(f"head '{source}': num_attention_heads is {heads}, which does not divide {queries} queries")
    head_dim = queries // heads
    keys = _matrix(source, weights, "layers.0.self_attn.k_proj.weight")[0]
    if keys < head_dim or keys % head_dim or queries % keys:
        raise ModelError(f"head '{source}': its k_proj gives {keys} numbers, for {heads} query heads of {head_dim}")
    return {"head_dim": head_dim, "num_key_value_heads": keys // head_dim}


def _config(source: str, given: dict[str, Any]) -> LlamaConfig:
    try:
        config = LlamaConfig(**given)
        rotary(config)
    except Exception as error:  # transformers' own checks
        raise ModelError(f"head '{source}': its config is not possible: {error}") from error
    if config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"head '{source}': partial_rotary_factor is set; only full rotation is supported")
    return config
