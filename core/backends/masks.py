"""What each row of a pass may attend to, from tree parents and committed lengths alone.

Slots below a row's committed length hold its prefix, slot = position. The pass's own rows stand behind it, in feed
order; their positions are logical (root position + depth), never slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import field, frozen
from torch.nn.utils.rnn import pad_sequence

from draftmux import tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


@frozen(eq=False)
class Feed:
    """One row of a pass: `tokens (n,)` and their `depths (n,)` in a tree whose root stands at position `start`.

    `before (k,)` are the depths of rows of the same tree that are in the slots already; `mask (n, k+n)` says which of
    those and of its own rows each row may see. `states (n, d)` go with the tokens of models that read more than tokens
    (EAGLE heads).
    """

    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    mask: NDArray[np.bool_]
    start: int
    before: NDArray[np.int64] = field(factory=lambda: np.zeros(0, dtype=np.int64))
    states: Tensor | None = None
    whole: Feed | None = None  # rows of the same tree from the first on, these last, for passes that take no `before`

    @classmethod
    def run(cls, tokens: NDArray[np.int64], start: int, states: Tensor | None = None) -> Feed:
        """A plain run of tokens."""
        length = len(tokens)
        return cls(tokens, np.arange(length), np.tri(length, dtype=np.bool_), start, states=states)

    def idle(self, start: int) -> Feed:
        """One token at `start` that means nothing, in the form of this feed."""
        return Feed.run(self.tokens[:1], start, None if self.states is None else self.states[:1])

    @classmethod
    def draft(cls, root: int, tokens: NDArray[np.int64], parents: NDArray[np.int64], start: int) -> Feed:
        """A root and its draft tree."""
        fed = np.concatenate((np.array([root], dtype=np.int64), tokens))
        return cls(fed, tree.row_depths(parents), tree.ancestor_mask(parents), start)

    @property
    def slot(self) -> int:
        """Where its first row goes."""
        return self.start + len(self.before)

    @property
    def end(self) -> int:
        """The slot behind its last row."""
        return self.slot + len(self.tokens)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Logical positions, `(n,)`."""
        return self.start + self.depths

    def last(self, count: int) -> Feed:
        """The last rows of a tree whose other rows are in the slots already."""
        held = len(self.tokens) - count
        if not held:
            return self
        own = slice(held, None)
        states = None if self.states is None else self.states[own]
        return Feed(self.tokens[own], self.depths[own], self.mask[own], self.start, self.depths[:held], states, self)

    def padded(self, width: int) -> Feed:
        """Rows repeated to `width`; a padding row sees itself and the prefix, and nobody sees it."""
        count, held = len(self.tokens), len(self.before)
        if count == width:
            return self
        mask = np.eye(width, held + width, held, dtype=np.bool_)
        mask[:count] = False
        mask[:count, : held + count] = self.mask
        tokens = np.concatenate((self.tokens, np.repeat(self.tokens[:1], width - count)))
        depths = np.concatenate((self.depths, np.zeros(width - count, dtype=np.int64)))
        states = self.states
        if states is not None:
            states = torch.cat((states, states[:1].expand(width - count, -1)))
        return Feed(tokens, depths, mask, self.start, self.before, states)

    def pieces(self, size: int) -> list[Feed]:
        """The same rows in feeds of at most `size`, to be passed one after the other."""
        return [
            Feed(
                self.tokens[at : at + size],
                self.depths[at : at + size],
                self.mask[at : at + size, : len(self.before) + at + size],
                self.start,
                np.concatenate((self.before, self.depths[:at])),
                None if self.states is None else self.states[at : at + size],
            )
            for at in range(0, len(self.tokens), size)
        ]


def attention_mask(feeds: Sequence[Feed], window: int | None = None) -> NDArray[np.bool_]:
    """`(rows, 1, n, slots)`, True where visible; feeds have one width n. `window` counts positions, itself included."""
    width = len(feeds[0].tokens)
    mask = np.zeros((len(feeds), 1, width, max(feed.end for feed in feeds)), dtype=np.bool_)
    for row, feed in enumerate(feeds):
        mask[row, 0, :, : feed.start] = True
        mask[row, 0, :, feed.start : feed.end] = feed.mask
        if window is not None:
            held = np.concatenate((np.arange(feed.start), feed.start + feed.before, feed.positions))
            mask[row, 0, :, : feed.end] &= feed.positions[:, None] - held[None, :] < window
    return mask


def stacked_states(feeds: Sequence[Feed]) -> dict[str, Tensor]:
    """`states (rows, n, d)` of feeds of one width as a keyword argument; none for models that read tokens alone."""
    given = [feed.states for feed in feeds if feed.states is not None]
    return {"states": torch.stack(given)} if given else {}


def own_rows(feeds: Sequence[Feed], states: Tensor) -> Tensor:
    """`(rows, n, …)` of results `(rows, m, …)` of passes over `whole` where feeds have one: their own rows alone."""
    if not any(feed.whole for feed in feeds):
        return states
    ends = [len((feed.whole or feed).tokens) for feed in feeds]
    parts = [states[row, end - len(feed.tokens) : end] for row, (feed, end) in enumerate(zip(feeds, ends, strict=True))]
    return pad_sequence(parts, batch_first=True)
