"""A model that reads something behind the draft model's own rows of a sequence, and leaves nothing there.

For an arbiter whose adapter is active on the segment alone: keys and values of the context are then the draft model's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from draftmux.backends.masks import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.backends.target import Target
    from draftmux.drafters.sps.bound import BoundSps
    from draftmux.types import Context
    from draftmux.verifiers.cospec.window import Ask


@frozen(eq=False)
class DraftRows:
    """Passes of `target` over rows of a drafter's model."""

    target: Target
    drafter: BoundSps

    @classmethod
    def over(cls, target: Target, drafter: BoundSps, rows: int) -> DraftRows:
        """Ready for passes of up to `rows` rows of a sequence."""
        target.share(drafter.reader.target).warm_up(rows - 1)
        return cls(target, drafter)

    def begin(self, context: Context) -> str:
        """Rows are found by request."""
        return context.request_id

    def fits(self, tokens: int, behind: int) -> bool:
        """Whether the model has positions for so many tokens with so many behind."""
        limit = self.target.max_length
        return limit is None or tokens + behind <= limit

    def read(self, asks: Sequence[Ask]) -> list[Tensor]:
        """Results `(n, V)` of a pass, of what is put behind each sequence."""
        readings = [self.drafter.whole(ask.state, ask.tokens) for ask in asks]
        sequences = [reading.sequence for reading in readings if reading.sequence is not None]
        feeds = []
        for ask, sequence in zip(asks, sequences, strict=True):
            mask = np.tri(len(ask.behind), dtype=np.bool_)
            if ask.two_way:
                mask[1:] = True
            feeds.append(Feed(ask.behind, np.arange(len(ask.behind)), mask, sequence.length))
        return [scores.logits for scores in self.target.forward(sequences, feeds)]
