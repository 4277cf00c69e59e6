"""Continuations merged into a trie with counts, and its most frequent part as a draft. Knows no files and no search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from draftmux.types import Budget, Draft
from draftmux_rest.datastore import BORDER

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCANNED = 2048  # nodes that are looked at when branches are limited; bounds the time


@frozen(eq=False)
class Trie:
    """Nodes by depth: token, parent (-1: the root) and count of the continuations that go through it, each `(N,)`."""

    tokens: NDArray[np.int32]
    parents: NDArray[np.int64]
    counts: NDArray[np.int64]


def count_nodes(rows: NDArray[np.int32]) -> Trie:
    """Merge continuations `(m, length)`, which must be sorted; each ends at its first border.

    In sorted rows the continuations of a node are neighbours: at every depth a node begins where a row first differs.
    """
    fresh = np.ones(rows.shape, dtype=np.bool_)
    fresh[1:] = np.logical_or.accumulate(rows[1:] != rows[:-1], axis=1)
    inside = np.logical_and.accumulate(rows != BORDER, axis=1).T.ravel()  # depth by depth, as all that follows
    starts = np.flatnonzero(fresh.T)
    counts = np.diff(starts, append=rows.size)
    starts, counts = starts[inside[starts]], counts[inside[starts]]
    begun = np.zeros(rows.size, dtype=np.int64)
    begun[starts] = 1
    number = np.cumsum(begun) - 1  # of the node that a cell belongs to, if it is inside
    parents = np.where(starts < len(rows), -1, number[starts - len(rows)])
    return Trie(rows.T.ravel()[starts], parents, counts)


def most_frequent(trie: Trie, budget: Budget) -> Draft:
    """The most frequent nodes within `budget`, the most frequent first; of equal ones the shallower, then the lower.

    A node is never more frequent than its parent, and deeper, so whoever is kept has its parent kept before it.
    """
    size = len(trie.counts)
    limited = budget.max_branches < min(size, budget.max_nodes)
    keep = min(size, SCANNED if limited else budget.max_nodes)
    if keep == 0 or budget.max_nodes == 0:
        return Draft.empty()
    rank = np.arange(size) - trie.counts * size
    order = np.argpartition(rank, keep - 1)[:keep]
    order = order[np.argsort(rank[order])]
    if limited:
        order = order[_within_branches(_parents(trie, order), budget)]
    return Draft(trie.tokens[order], _parents(trie, order))


def _parents(trie: Trie, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Parents of the nodes in `order`, renumbered by their place in it."""
    place = np.full(len(trie.parents) + 1, -1)
    place[order] = np.arange(len(order))
    return place[trie.parents[order]]  # a root's -1 reads the last cell, which is -1


def _within_branches(parents: NDArray[np.int64], budget: Budget) -> list[int]:
    """Nodes to keep, in order, so that no more than `budget.max_branches` leaves stand."""
    kept: list[int] = []
    inner = {-1}
    branches = 0
    taken = {-1}
    for node, parent in enumerate(parents.tolist()):
        opens = parent in inner  # another branch; a leaf that gets its first child only grows
        if parent not in taken or branches + opens > budget.max_branches:
            continue
        if len(kept) == budget.max_nodes:
            break
        branches += opens
        inner.add(parent)
        taken.add(node)
        kept.append(node)
    return kept
