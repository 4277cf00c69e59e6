"""What each row of a pass may attend to, from tree parents and committed lengths alone.

Slots below a row's committed length hold its prefix, slot = position. The pass's own rows stand behind it, in feed
order; their positions are logical (root position + depth), never slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from draftmux import tree

if TYPE_CHECKING:
    from numpy.typing import NDArray


@frozen(eq=False)
class Feed:
    """One row of a pass: `tokens (n,)` whose first stands at `start`, `depths (n,)`, ancestor `mask (n, n)`."""

    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    mask: NDArray[np.bool_]
    start: int

    @classmethod
    def run(cls, tokens: NDArray[np.int64], start: int) -> Feed:
        """A plain run of tokens."""
        length = len(tokens)
        return cls(tokens, np.arange(length), np.tri(length, dtype=np.bool_), start)

    @classmethod
    def draft(cls, root: int, tokens: NDArray[np.int64], parents: NDArray[np.int64], start: int) -> Feed:
        """A root and its draft tree."""
        fed = np.concatenate((np.array([root], dtype=np.int64), tokens))
        return cls(fed, tree.row_depths(parents), tree.ancestor_mask(parents), start)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Logical positions, `(n,)`."""
        return self.start + self.depths

    def padded(self, width: int) -> Feed:
        """Rows repeated to `width`; a padding row sees itself and the prefix, and nobody sees it."""
        extra = width - len(self.tokens)
        if not extra:
            return self
        mask = np.eye(width, dtype=np.bool_)
        mask[: len(self.mask), : len(self.mask)] = self.mask
        tokens = np.concatenate((self.tokens, np.repeat(self.tokens[:1], extra)))
        return Feed(tokens, np.concatenate((self.depths, np.zeros(extra, dtype=np.int64))), mask, self.start)


def attention_mask(feeds: list[Feed], window: int | None = None) -> NDArray[np.bool_]:
    """`(rows, 1, n, slots)`, True where visible; feeds have one width n. `window` counts positions, itself included."""
    width = len(feeds[0].tokens)
    extent = max(feed.start for feed in feeds) + width
    mask = np.zeros((len(feeds), 1, width, extent), dtype=np.bool_)
    for row, feed in enumerate(feeds):
        mask[row, 0, :, : feed.start] = True
        mask[row, 0, :, feed.start : feed.start + width] = feed.mask
        if window is not None:
            held = np.concatenate((np.arange(feed.start), feed.positions))
            mask[row, 0, :, : len(held)] &= feed.positions[:, None] - held[None, :] < window
    return mask
