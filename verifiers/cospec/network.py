"""The arbiter while it is trained: draft model with a LoRA, and head, over whole blocks, padded on the left.

It gives what the arbiter at work gives: the same rows, the same positions, the same mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import frozen
from torch import nn

from draftmux.verifiers.cospec.layout import drafted_rows, segment, size, visible
from draftmux.verifiers.cospec.window import SLACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.verifiers.cospec.head import Head


@frozen(eq=False)
class Sample:
    """One block: context ids `(T,)`, `drafted (K,)` and `verified (K,)`, `features (K, F)`."""

    context: NDArray[np.int64]
    drafted: tuple[int, ...]
    verified: tuple[int, ...]
    features: NDArray[np.float32]

    @property
    def size(self) -> int:
        """Rows that it takes."""
        return len(self.context) + size(len(self.drafted))


@frozen(eq=False)
class Batch:
    """B blocks of up to K drafted tokens in L rows: `ids (B, L)`, `positions (B, L)`, `mask (B, 1, L, L)` True where
    visible, `rows (B, K)` of the drafted tokens, `features (B, K, F)`. What is behind a shorter draft means nothing."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    rows: Tensor
    features: Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample], window: int, separator: int) -> Batch:
        """Blocks with as much of their context as an arbiter at work may hold: the last `window` tokens, and up to
        `SLACK` more by which a window grows before it is read anew."""
        contexts = [s.context if len(s.context) <= window + SLACK else s.context[-window:] for s in samples]
        sizes = [len(context) + size(len(s.drafted)) for context, s in zip(contexts, samples, strict=True)]
        count, width, longest = len(samples), max(sizes), max(len(s.drafted) for s in samples)
        ids, positions = np.full((count, width), separator), np.zeros((count, width), dtype=np.int64)
        mask = np.zeros((count, 1, width, width), dtype=np.bool_)
        rows = np.zeros((count, longest), dtype=np.int64)
        numbers = np.zeros((count, longest, samples[0].features.shape[-1]), dtype=np.float32)
        for i, (sample, context, total) in enumerate(zip(samples, contexts, sizes, strict=True)):
            pad, drafted = width - total, len(sample.drafted)
            ids[i, pad:] = np.concatenate((context, segment(sample.drafted, sample.verified, separator)))
            positions[i, pad:] = np.arange(total)
            mask[i, 0, pad:, pad:] = visible(len(context), drafted)
            mask[i, 0, range(pad), range(pad)] = True  # a row that sees nothing has no softmax
            rows[i, :drafted] = np.arange(width)[pad:][drafted_rows(len(context), drafted)]
            numbers[i, :drafted] = sample.features
        return cls(*(torch.from_numpy(each) for each in (ids, positions, mask, rows, numbers)))

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(*(each.to(device) for each in (self.ids, self.positions, self.mask, self.rows, self.features)))


class Network(nn.Module):
    """Backbone without output layer, and head. `backbone` is a transformers model that gives its last normed states.

    `behind` are the first layers of adapters that see nothing of the context: there they add nothing.
    """

    def __init__(self, backbone: Any, head: Head, behind: Iterable[nn.Module] = ()) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head
        self._behind: Tensor | None = None  # (B, L, 1), 1 from the first separator on
        for first in behind:
            first.register_forward_pre_hook(self._blind)

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(B, K)`."""
        return self.head(self.states(batch), batch.features)  # type: ignore[no-any-return]

    def states(self, batch: Batch) -> Tensor:
        """`(B, K, d)` at the drafted tokens."""
        dtype = self.backbone.dtype
        places = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        self._behind = (places >= batch.rows[:, :1] - 1)[..., None].to(dtype)
        blind = torch.zeros((), dtype=dtype, device=batch.mask.device).masked_fill(~batch.mask, torch.finfo(dtype).min)
        found = self.backbone(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=blind, use_cache=False
        ).logits  # (B, L, d)
        self._behind = None
        return found.gather(1, batch.rows[..., None].expand(-1, -1, found.shape[-1]))  # type: ignore[no-any-return]

    def _blind(self, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
        return None if self._behind is None else (inputs[0] * self._behind.to(inputs[0].dtype),)
