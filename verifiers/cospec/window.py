"""A model that reads the end of a sequence and something behind it: its KV rows are kept while only the end grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, frozen

from draftmux.backends.masks import Feed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.backends.beside import Reader
    from draftmux.backends.target import SlotSequence, Target
    from draftmux.types import Context

CHUNK = 16  # unread tokens up to which all sequences read in one common pass
SLACK = 256  # tokens by which a window may grow before it is read anew


@define(eq=False)
class Window:
    """One sequence: its KV row, which holds the tokens from `start` on. Its length says how many."""

    sequence: SlotSequence | None = None
    start: int = 0


@frozen(eq=False)
class Ask:
    """`tokens (T,)` of a sequence, and `behind (n,)`, what is read after them; `state` is what a reader began with."""

    state: Any
    tokens: NDArray[np.int64]
    behind: NDArray[np.int64]
    two_way: bool  # whether all of `behind` but the first sees everything


@frozen(eq=False)
class WindowReader:
    """Passes over the last `size` tokens of sequences, and what is put behind them. Positions begin at the window's."""

    reader: Reader
    size: int

    def begin(self, context: Context) -> Window:
        """Nothing is read yet."""
        return Window()

    def fits(self, tokens: int, behind: int) -> bool:
        """Always: a window is cut to what the model has positions for."""
        return True

    @property
    def target(self) -> Target:
        """The model."""
        return self.reader.target

    def read(self, asks: Sequence[Ask]) -> list[Tensor]:
        """Results `(1+n, V)` of a pass, of the last token and of those behind it; only the former is remembered."""
        self.reader.sweep()
        feeds = [self._feed(ask) for ask in asks]
        sequences = [ask.state.sequence for ask in asks]
        found = self.target.forward([s for s in sequences if s is not None], feeds)
        rows = []
        for ask, feed, scores in zip(asks, feeds, found, strict=True):
            assert ask.state.sequence is not None
            ask.state.sequence.length = feed.end - len(ask.behind)
            rows.append(scores.logits[-1 - len(ask.behind) :])
        return rows

    def _feed(self, ask: Ask) -> Feed:
        """What is unread, and what is behind it."""
        own, total = ask.state, len(ask.tokens)
        if own.sequence is None:
            own.sequence = self.reader.open(own)
            own.start = max(0, total - self._most(ask))
        if total - own.start > self._most(ask) + self._slack(ask):
            own.start, own.sequence.length = max(0, total - self._most(ask)), 0
        own.sequence.length = min(own.sequence.length, total - own.start - 1)  # of the last token there is a result
        unread = ask.tokens[own.start + own.sequence.length :]
        if len(unread) > CHUNK:
            self.target.fill(own.sequence, unread[:-1])
            unread = unread[-1:]
        fed = np.concatenate((unread, ask.behind))
        mask = np.tri(len(fed), dtype=np.bool_)
        if ask.two_way:
            mask[len(unread) + 1 :] = True
        return Feed(fed, np.arange(len(fed)), mask, own.sequence.length)

    def _most(self, ask: Ask) -> int:
        """Tokens of a fresh window: no more than the model has positions for."""
        limit = self.target.max_length
        return self.size if limit is None else max(1, min(self.size, limit - len(ask.behind)))

    def _slack(self, ask: Ask) -> int:
        limit = self.target.max_length
        return SLACK if limit is None else max(0, min(SLACK, limit - len(ask.behind) - self._most(ask)))
