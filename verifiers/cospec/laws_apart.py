"""The divergence arbiter at work: the draft model reads the drafts of a step once more, for its laws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import frozen

from draftmux.verifiers.cospec.arbitration import Arbiter
from draftmux.verifiers.cospec.window import Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.types import Context
    from draftmux.verifiers.cospec.walk import Block
    from draftmux.verifiers.cospec.window import WindowReader


@frozen(eq=False)
class Divergence(Arbiter):
    """Reads drafts with the draft model."""

    window: WindowReader

    def begin(self, context: Context) -> Any:
        """Nothing is read yet."""
        return self.window.begin(context)

    @torch.inference_mode()
    def scores(self, blocks: Sequence[Block]) -> list[list[float]]:
        """Of every place, in one pass."""
        asks = [
            Ask(b.state, b.request.context.tokens, np.array(b.drafted[:-1], dtype=np.int64), two_way=False)
            for b in blocks
        ]
        found = zip(blocks, self.window.read(asks), strict=True)
        return [likeness(block.request.scores.logits[: len(rows)], rows).tolist() for block, rows in found]


def likeness(p: Tensor, q: Tensor) -> Tensor:
    """`1 - JS / log 2` of rows of logits `(K, V)`, `(K,)`; ids that one of the two lacks are left out."""
    size = min(p.shape[-1], q.shape[-1])
    ours, theirs = (each[:, :size].float().log_softmax(-1) for each in (p, q))
    middle = torch.logaddexp(ours, theirs) - math.log(2)
    apart = sum((each.exp() * (each - middle)).nan_to_num().sum(-1) for each in (ours, theirs)) / 2
    return 1 - torch.as_tensor(apart).clamp(0, math.log(2)) / math.log(2)
