"""Where the last tokens of a text have stood before. Knows committed tokens only; nothing of drafts, trees or budgets.

A position is the index of an n-gram's last token. The n-gram that ends the text is the query itself, the live suffix,
and never counts as a match. Keys are the tokens themselves, so there are no false matches.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


class NgramIndex:
    """Every n-gram of one growing text, for the n in `sizes`. Takes O(n) a token to grow and O(T) memory for each n."""

    __slots__ = ("_ends", "_tail", "length")

    def __init__(self, sizes: Iterable[int], tokens: NDArray[np.int64]) -> None:
        self.length = 0
        self._tail: list[int] = []  # the last max(sizes) tokens, at most
        self._ends: dict[int, defaultdict[tuple[int, ...], list[int]]] = {size: defaultdict(list) for size in sizes}
        self.catch_up(tokens)

    def catch_up(self, tokens: NDArray[np.int64]) -> None:
        """Index what of the whole text `tokens (T,)` is not indexed yet."""
        fresh = tokens[self.length :].tolist()
        self.length = len(tokens)
        known = len(self._tail)
        text = self._tail + fresh
        for size, ends in self._ends.items():
            part = text[max(0, known - size + 1) :]
            first = self.length - len(part) + size - 1
            for end, gram in enumerate(zip(*(part[shift:] for shift in range(size)), strict=False), first):
                ends[gram].append(end)
        self._tail = text[-max(self._ends) :]

    def matches(self, size: int, *, oldest_first: bool = False) -> Iterator[int]:
        """Positions where the last `size` tokens ended before, the newest first unless told otherwise."""
        if self.length <= size:
            return iter(())
        ends = self._ends[size][tuple(self._tail[-size:])]
        return islice(ends, len(ends) - 1) if oldest_first else islice(reversed(ends), 1, None)


def continuation(tokens: NDArray[np.int64], end: int, length: int, *, periodic: bool) -> NDArray[np.int64]:
    """The `length` tokens that followed position `end`, clipped at the end of the text.

    `periodic` goes on past the end by self-overlap, as LZ77 does: the tokens after `end` are repeated.
    """
    copied = tokens[end + 1 : end + 1 + length]
    return np.resize(copied, length) if periodic else copied


def match_length(tokens: NDArray[np.int64], end: int, limit: int) -> int:
    """How many tokens up to position `end` equal those up to the end of the text; counted up to `limit`."""
    span = min(limit, end + 1)
    differing = np.flatnonzero(tokens[end + 1 - span : end + 1] != tokens[len(tokens) - span :])
    return span - 1 - int(differing[-1]) if differing.size else span
