"""Training-time test (2503.01840, section 3.3): the head unrolled as decoding will use it, everywhere at once.

At step s every pair reads the token s places further on and, from s = 1, its own output of step s - 1 in place of a
fused feature. It attends to the step-0 keys of all pairs up to its own, and to its own keys of the steps between: what
a chain that starts there would see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from draftmux.drafters.eagle3.model import Attention, Eagle3Head


@frozen(eq=False)
class Batch:
    """`ids (B, L)`, `states (B, L-1, taps * d)`, and `rows (B, M)`: the pairs to unroll from.

    A row r is valid at step s where `r + 2 + s`, the place of what it predicts, lies in `answers (B, L)`.
    """

    ids: Tensor
    states: Tensor
    rows: Tensor
    answers: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(*(tensor.to(device) for tensor in (self.ids, self.states, self.rows, self.answers)))

    def at(self, offset: int) -> Tensor:
        """Places `rows + offset`, cut to the text."""
        return (self.rows + offset).clamp(0, self.ids.shape[1] - 1)

    def tokens(self, offset: int) -> Tensor:
        """`(B, M)` ids at those places."""
        return self.ids.gather(1, self.at(offset))

    def valid(self, step: int) -> Tensor:
        """`(B, M)` bool: rows that predict a token of the answer at this step."""
        inside = (self.rows >= 0) & (self.rows + 2 + step < self.ids.shape[1])
        return inside & self.answers.gather(1, self.at(2 + step))


def unroll(head: Eagle3Head, batch: Batch, steps: int) -> Iterator[Tensor]:
    """The head's outputs `(B, M, d)` before the last norm, step by step. Heads of one layer only."""
    layer: Any = head.layers[0]
    attention = layer.self_attn
    features = head.fuse(batch.states).to(batch.states.dtype)  # (B, N, d); autocast would narrow the whole stream
    count = features.shape[1]
    positions = torch.arange(count, device=features.device)[None]
    read, _ = layer.inputs(features, head.embed_tokens(batch.ids[:, 1 : count + 1]))
    _, keys, values = attention.heads(read, head.rotation(positions, features.dtype))
    rows = batch.rows.clamp(0, count - 1)  # padding sees a pair too: the gradients of a law over nothing are NaN
    seen = positions[:, None, :] <= rows[:, :, None]  # (B, M, N)
    own: list[tuple[Tensor, Tensor]] = []
    states = features.gather(1, rows[..., None].expand(-1, -1, features.shape[-1]))
    for step in range(steps):
        read, residual = layer.inputs(states, head.embed_tokens(batch.tokens(1 + step)))
        query, key, value = attention.heads(read, head.rotation(rows + step, features.dtype))
        if step:
            own.append((key, value))
        mixed = _attend(attention, query, (keys, values), seen, own)
        states = layer.outputs(residual + attention.o_proj(mixed))
        yield states
        states = head.carried(states)


def _attend(
    attention: Attention,
    query: Tensor,
    stable: tuple[Tensor, Tensor],
    seen: Tensor,
    own: list[tuple[Tensor, Tensor]],
) -> Tensor:
    """`query (B, H, M, h)` over stable keys `(B, K, N, h)` where `seen`, and its own later ones; `(B, M, H * h)`."""
    batch, heads, count, width = query.shape
    grouped = query.reshape(batch, -1, attention.num_key_value_groups, count, width) * attention.scaling
    keys, values = (states[:, :, None] for states in stable)
    scores = (grouped @ keys.mT).masked_fill(~seen[:, None, None], -torch.inf)  # (B, K, G, M, N)
    later = [(grouped * key[:, :, None]).sum(-1, keepdim=True) for key, _ in own]
    wide = torch.promote_types(query.dtype, torch.float32)
    law = torch.cat([scores, *later], -1).softmax(-1, wide).to(query.dtype)
    stable_law, *later_law = law.split([scores.shape[-1], *[1] * len(own)], -1)
    mixed: Tensor = stable_law @ values
    for weight, (_, value) in zip(later_law, own, strict=True):
        mixed = mixed + weight * value[:, :, None]
    return mixed.reshape(batch, heads, count, width).transpose(1, 2).reshape(batch, count, heads * width)
