"""Where the end of a text stands in a datastore, by binary search on the suffix array. Knows nothing of drafts."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from draftmux_rest.datastore import Datastore


@frozen
class Hits:
    """Rows `first` to `stop - 1` of the suffix array begin with the last `span` tokens and go on after them."""

    span: int
    first: int
    stop: int


def longest_match(store: Datastore, query: Sequence[int], shortest: int) -> Hits | None:
    """Hits of the longest end of `query`, at least `shortest` tokens long; None without any.

    Only matches with a next token in their document count. If an end of `query` has such a match, so has every shorter
    end, one position on. So the span is found by bisection as well: O(log spans * log corpus) comparisons.
    """
    found, first = 0, 0
    low, high = shortest, len(query)
    while low <= high:
        span = (low + high) // 2
        end = list(query[len(query) - span :])
        row = _row(store, [*end, 0])  # where a document ends after a match sorts before this
        if _begins(store, row, end):
            found, first, low = span, row, span + 1
        else:
            high = span - 1
    if not found:
        return None
    end = list(query[len(query) - found :])
    return Hits(found, first, _row(store, [*end[:-1], end[-1] + 1]))


def continuations(store: Datastore, hits: Hits, length: int, max_hits: int) -> NDArray[np.int32]:
    """`(hits, length)` tokens that follow the hits, in the suffix array's order; behind a border they mean nothing.

    Of more than `max_hits` hits, that many are taken at even distances.
    """
    count = hits.stop - hits.first
    taken = hits.first + np.arange(min(count, max_hits), dtype=np.int64) * count // min(count, max_hits)
    starts = store.suffixes[taken].astype(np.int64) + hits.span
    positions = starts[:, None] + np.arange(length)
    rows: NDArray[np.int32] = store.tokens[np.minimum(positions, len(store.tokens) - 1)]  # the last is a border
    return rows


def _row(store: Datastore, key: list[int]) -> int:
    """The first row of the suffix array whose suffix is not less than `key`."""
    tokens, size = store.tokens, len(key)
    return bisect_left(store.suffixes, key, key=lambda at: tokens[int(at) : int(at) + size].tolist())


def _begins(store: Datastore, row: int, key: list[int]) -> bool:
    if row == len(store.suffixes):
        return False
    at = int(store.suffixes[row])
    return bool(store.tokens[at : at + len(key)].tolist() == key)
