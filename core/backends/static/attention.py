"""The attention function that models call: stores this pass's keys and values in their slots, attends under its mask.

transformers finds it under the name `draftmux` (AttentionInterface, AttentionMaskInterface). Which pass is running is
known per thread; a model that is called outside of any pass attends as transformers' `sdpa` does.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

NAME = "draftmux"
UNKNOWN = ("s_aux", "sinks", "position_bias")  # what some models add to their scores
PACKED = 64  # rows up to which the query heads of one KV head are packed; wider passes would need too large a mask


class Pass(Protocol):
    """What runs now: knows where to store and what each row may see."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, softcap: float) -> Tensor:
        """Attention of `query (B, H, n, d)` over stored and new keys and values; `(B, n, H, dv)`. Softcap 0 is none."""
        ...


class _Running(threading.local):
    current: Pass | None = None


_running = _Running()


@contextmanager
def running(current: Pass) -> Iterator[None]:
    """The pass that attention calls of this thread belong to."""
    before, _running.current = _running.current, current
    try:
        yield
    finally:
        _running.current = before


def forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As transformers calls it, once a layer."""
    if odd := [name for name in UNKNOWN if kwargs.get(name) is not None]:
        raise ModelError(
            f"{type(module).__name__} attends with {', '.join(odd)}, which this backend does not know; use "
            f"`backend: {{use: transformers, attention: eager}}`"
        )
    scale = float(kwargs.get("scaling") or query.shape[-1] ** -0.5)
    softcap = float(kwargs.get("softcap") or 0.0)
    if _running.current is None:
        if softcap:
            return masked_attention(query, key, value, _additive(attention_mask, query, key), scale, softcap), None
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    operands = (query, key, value, module.layer_idx, scale, softcap)
    if torch.compiler.is_compiling():
        return torch.ops.draftmux.attend(*operands), None
    return _attend(*operands), None


def _additive(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """A mask of transformers' `sdpa`, where None is causal, in the form that is added to scores."""
    if mask is None:
        rows, columns = query.shape[2], key.shape[2]
        mask = torch.ones(1, 1, rows, columns, dtype=torch.bool, device=query.device).tril(columns - rows)
    return additive(mask, query.dtype)


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of what is seen in the form that is added to scores: 0, or minus infinity."""
    hidden = torch.full((), -torch.inf, dtype=dtype, device=seen.device)
    return torch.where(seen, torch.zeros_like(hidden), hidden)


def _attend(query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float, softcap: float) -> Tensor:
    assert _running.current is not None
    return _running.current.attend(layer, query, key, value, scale, softcap)


def _shape(query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float, softcap: float) -> Tensor:
    return query.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])


# For compiled models attention is one opaque step: what it looks at (slots, masks) changes with every pass.
_library = torch.library.Library("draftmux", "FRAGMENT")
_library.define("attend(Tensor query, Tensor key, Tensor value, int layer, float scale, float softcap) -> Tensor")
_library.impl("attend", _attend, "CPU")
_library.impl("attend", _attend, "CUDA")
_library.impl("attend", _shape, "Meta")


def _mask(*args: Any, **kwargs: Any) -> Tensor | None:
    return None if _running.current is not None else sdpa_mask(*args, **kwargs)


AttentionInterface.register(NAME, forward)
AttentionMaskInterface.register(NAME, _mask)


def use(model: Any) -> None:
    """Let a model attend through `forward`; ModelError when it has an attention of its own."""
    model.set_attn_implementation(NAME)
    if model.config.get_text_config(decoder=True)._attn_implementation != NAME:
        raise ModelError(
            f"{type(model).__name__} does not let its attention be replaced; use `backend: {{use: transformers}}`"
        )


def causal_attention(query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attention of a run from position 0 on, where each row sees all before it: no mask is needed. `(B, n, H, dv)`."""
    groups = query.shape[1] // keys.shape[1]
    found = scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scale, enable_gqa=groups > 1)
    return found.transpose(1, 2).contiguous()


def masked_attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float, softcap: float
) -> Tensor:
    """`query (B, H, n, d)` over `keys, values (B, H_kv, m, d)` under an additive `mask (B, 1, n, m)`; `(B, n, H, dv)`.

    Query heads of one KV head are packed into rows, so that keys and values are not repeated.
    """
    batch, heads, rows, _ = query.shape
    groups = heads // keys.shape[1]
    if softcap:
        found = _softcapped(query, keys, values, mask, scale, softcap)
    elif groups > 1 and rows <= PACKED:
        packed = query.reshape(batch, keys.shape[1], groups * rows, query.shape[3])
        found = scaled_dot_product_attention(packed, keys, values, attn_mask=_tiled(mask, groups), scale=scale)
    else:
        if query.is_cuda and mask is not None:  # grouped and masked, a kernel would write out all scores
            keys, values, groups = (*(states.repeat_interleave(groups, 1) for states in (keys, values)), 1)
        found = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale, enable_gqa=groups > 1)
    return found.reshape(batch, heads, rows, values.shape[3]).transpose(1, 2).contiguous()


def _tiled(mask: Tensor | None, groups: int) -> Tensor | None:
    """The mask of packed heads, `(B, 1, groups * n, m)`. Layers of one kind share a mask, so it is kept with it."""
    if mask is None:
        return None
    tiles: dict[int, Tensor] = mask.__dict__.setdefault("tiles", {})
    if groups not in tiles:
        tiles[groups] = mask.repeat(1, 1, groups, 1)
    return tiles[groups]


def _softcapped(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float, softcap: float
) -> Tensor:
    """Scores squashed by `softcap * tanh(score / softcap)` before the mask (Gemma 2), softmax in float32 or better."""
    batch, heads, rows, width = query.shape
    packed = query.reshape(batch, keys.shape[1], heads // keys.shape[1], rows, width)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = softcap * torch.tanh((packed @ keys[:, :, None].mT).to(wide) * (scale / softcap))
    law = (scores if mask is None else scores + mask[:, :, None]).softmax(-1)
    return (law.to(values.dtype) @ values[:, :, None]).reshape(batch, heads, rows, values.shape[3])
