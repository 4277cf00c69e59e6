"""The EAGLE-3 head (2503.01840): one decoder layer, sometimes more, over the target's hidden states and next tokens.

Pair j is the target's state at position j and the token at j + 1; it stands at position j and predicts token j + 2. The
names of modules are those of checkpoints. Norms and rotations are computed in float32 or better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from attrs import frozen
from torch import nn
from torch.nn.functional import silu
from transformers import LlamaConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, eager_attention_forward

if TYPE_CHECKING:
    from torch import Tensor

Rotation = tuple["Tensor", "Tensor"]  # cosines and sines, (B, n, head_dim)


@frozen
class HeadShape:
    """What an EAGLE-3 head has beyond a Llama layer: sizes and the flags of checkpoints' configs."""

    target_hidden_size: int
    draft_vocab_size: int
    taps: int = 3
    norm_before_residual: bool = False  # whether the residual is the normed feature
    norm_before_fc: bool = False  # one norm over all taps before they are fused
    fc_norm: bool = False  # one norm a tap
    norm_output: bool = False  # whether a node hands on its normed state
    qk_norm: bool = False


class Attention(nn.Module):
    """Grouped-query attention with rotary positions. The first layer reads embedding and feature, side by side."""

    is_causal = True

    def __init__(self, config: LlamaConfig, layer: int, inputs: int, qk_norm: bool) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer
        self.head_dim = int(config.head_dim)
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        queries, keys = (self.head_dim * heads for heads in (config.num_attention_heads, config.num_key_value_heads))
        bias = bool(config.attention_bias)
        self.q_proj = nn.Linear(inputs, queries, bias=bias)
        self.k_proj = nn.Linear(inputs, keys, bias=bias)
        self.v_proj = nn.Linear(inputs, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        if qk_norm:
            self.q_norm = nn.RMSNorm(self.head_dim, config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(self.head_dim, config.rms_norm_eps)

    def heads(self, states: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `(B, H, n, head_dim)`, rotated."""
        shape = (*states.shape[:-1], -1, self.head_dim)
        query, key, value = (part(states).view(shape) for part in (self.q_proj, self.k_proj, self.v_proj))
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = apply_rotary_pos_emb(query.transpose(1, 2), key.transpose(1, 2), *rotation)
        return query, key, value.transpose(1, 2)

    def forward(self, states: Tensor, rotation: Rotation, mask: Tensor | None, cache: Any) -> Tensor:
        """`(B, n, inputs)` to `(B, n, d)`."""
        query, key, value = self.heads(states, rotation)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        attend: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        found, _ = attend(self, query, key, value, mask, scaling=self.scaling, dropout=0.0)
        return self.o_proj(found.reshape(*states.shape[:-1], -1))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """A gated SiLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """`(…, d)` to `(…, d)`."""
        return self.down_proj(silu(self.gate_proj(states)) * self.up_proj(states))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """A decoder layer; the first one takes the token's embedding beside the feature."""

    def __init__(self, config: LlamaConfig, index: int, shape: HeadShape) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.norm_before_residual = shape.norm_before_residual
        self.input_layernorm = nn.RMSNorm(size, eps)
        if index == 0:
            self.hidden_norm = nn.RMSNorm(size, eps)
        self.self_attn = Attention(config, index, 2 * size if index == 0 else size, shape.qk_norm)
        self.post_attention_layernorm = nn.RMSNorm(size, eps)
        self.mlp = Mlp(config)

    def inputs(self, states: Tensor, embeds: Tensor) -> tuple[Tensor, Tensor]:
        """What attention reads, and the residual."""
        if not hasattr(self, "hidden_norm"):
            return self.input_layernorm(states), states
        normed = self.hidden_norm(states)
        residual = normed if self.norm_before_residual else states
        return torch.cat((self.input_layernorm(embeds), normed), -1), residual

    def forward(
        self, states: Tensor, embeds: Tensor, rotation: Rotation, mask: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        """`(B, n, d)` to `(B, n, d)`, before any norm."""
        read, residual = self.inputs(states, embeds)
        return self.outputs(residual + self.self_attn(read, rotation, mask, cache))

    def outputs(self, states: Tensor) -> Tensor:
        """The stream after the MLP."""
        return states + self.mlp(self.post_attention_layernorm(states))  # type: ignore[no-any-return]


class Eagle3Head(PreTrainedModel):  # type: ignore[misc]  # transformers ships no types
    """Reads fused features, or states of earlier pairs, as `states (B, n, d)`; logits `(B, n, draft vocabulary)`."""

    config_class = LlamaConfig
    base_model_prefix = "model"
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _no_split_modules: ClassVar[list[str]] = []

    def __init__(self, config: LlamaConfig, shape: HeadShape) -> None:
        super().__init__(config)
        size, eps, width = config.hidden_size, config.rms_norm_eps, shape.target_hidden_size
        self.shape = shape
        self.embed_tokens = nn.Embedding(config.vocab_size, size)
        if shape.norm_before_fc:
            self.input_norm = nn.RMSNorm(shape.taps * width, eps)
        if shape.fc_norm:
            self.fc_norm = nn.ModuleList(nn.RMSNorm(width, eps) for _ in range(shape.taps))
        self.fc = nn.Linear(shape.taps * width, size, bias=False)
        self.layers = nn.ModuleList(Layer(config, index, shape) for index in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(size, eps)
        self.lm_head = nn.Linear(size, shape.draft_vocab_size, bias=False)
        self.frequencies, self.amplitude = rotary(config)  # no buffer: it keeps its dtype

    def place(self, device: torch.device, dtype: torch.dtype) -> Eagle3Head:
        """Move to the target's device and dtype, for inference."""
        self.to(device, dtype).eval().requires_grad_(False)
        self.frequencies = self.frequencies.to(device)
        return self

    def fuse(self, taps: Tensor) -> Tensor:
        """Features `(…, d)` of the target's states `(…, taps * target_hidden_size)`, low to high."""
        if self.shape.norm_before_fc:
            taps = self.input_norm(taps)
        if self.shape.fc_norm:
            parts = taps.split(self.shape.target_hidden_size, -1)
            taps = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(taps)  # type: ignore[no-any-return]

    def blank_states(self, rows: int) -> Tensor:
        """`(rows, d)` that mean nothing, in the form of what a pass reads."""
        return self.norm.weight.new_zeros(rows, self.config.hidden_size)  # fc may be packed

    def carried(self, states: Tensor) -> Tensor:
        """What a pair hands on to the next drafted one, of its last layer's output `(…, d)`."""
        return self.norm(states) if self.shape.norm_output else states

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """Cosines and sines `(B, n, head_dim)`."""
        wide = torch.promote_types(dtype, torch.float32)
        angles = positions[..., None].to(wide) * self.frequencies.to(positions.device, wide)
        angles = torch.cat((angles, angles), -1)
        return (angles.cos() * self.amplitude).to(dtype), (angles.sin() * self.amplitude).to(dtype)

    def forward(
        self,
        input_ids: Tensor,
        states: Tensor | None = None,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        **others: Any,
    ) -> CausalLMOutput:
        """As a language model is called; `cache` and `logits_to_keep` (0: all) as transformers' models take them."""
        embeds = self.embed_tokens(input_ids)
        states = torch.zeros_like(embeds) if states is None else states
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        rotation = self.rotation(position_ids, embeds.dtype)
        for layer in self.layers:
            states = layer(states, embeds, rotation, attention_mask, others.get("cache"))
        kept = states[:, -others.get("logits_to_keep", 0) :]
        return CausalLMOutput(logits=self.lm_head(self.norm(kept)))


def rotary(config: LlamaConfig) -> tuple[Tensor, float]:
    """Angles per position `(head_dim / 2,)`, and what cosines and sines are multiplied by."""
    kind = config.rope_parameters["rope_type"]
    if kind != "default":
        return ROPE_INIT_FUNCTIONS[kind](config)  # type: ignore[no-any-return]
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    return config.rope_parameters["rope_theta"] ** -steps, 1.0
