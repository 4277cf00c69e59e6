"""Arithmetic of draft trees given by parents alone. Knows nothing of tokens, models or caches.

A tree of N drafted nodes is an integer array `parents (N,)` with `parents[i] < i`; -1 stands for the root, the last
committed token. Rows of a target pass are the root, then the nodes: row 0 is the root and row i+1 is node i.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROOT = -1


def depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Depth of every node, `(N,)`; a child of the root has depth 1."""
    depth = np.empty(len(parents), dtype=np.int64)
    for node, parent in enumerate(parents.tolist()):
        depth[node] = 1 if parent == ROOT else depth[parent] + 1
    return depth


def row_depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Depth of every row, `(N+1,)`: 0 for the root, then the nodes. Position id = root position + depth."""
    return np.concatenate((np.zeros(1, dtype=np.int64), depths(parents)))


def ancestor_mask(parents: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`(N+1, N+1)`, True where row r may see row c: c is r itself or an ancestor of r."""
    rows = len(parents) + 1
    if is_chain(parents):
        return np.tri(rows, dtype=np.bool_)
    mask = np.eye(rows, dtype=np.bool_)
    for node, parent in enumerate(parents.tolist()):
        mask[node + 1] |= mask[parent + 1]
    return mask


def is_chain(parents: NDArray[np.int64]) -> bool:
    """Whether every node is the only child of the one before it."""
    return bool((parents == np.arange(-1, len(parents) - 1)).all())


def merge_candidates(
    candidates: Sequence[Sequence[int]], max_nodes: int, max_depth: int
) -> tuple[list[int], list[int]]:
    """Merge candidate continuations into a trie, in order, until `max_nodes` nodes stand: tokens and parents."""
    tokens: list[int] = []
    parents: list[int] = []
    child: dict[tuple[int, int], int] = {}
    for candidate in candidates:
        node = ROOT
        for token in candidate[:max_depth]:
            key = (node, index(token))
            if key not in child:
                if len(tokens) == max_nodes:
                    break
                child[key] = len(tokens)
                tokens.append(key[1])
                parents.append(node)
            node = child[key]
    return tokens, parents
