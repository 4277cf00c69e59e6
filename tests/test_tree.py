from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux import tree
from draftmux.types import UNLIMITED


@st.composite
def trees(draw: st.DrawFn, most: int = 14) -> list[int]:
    """Parents of any tree."""
    size = draw(st.integers(0, most))
    return [draw(st.integers(-1, node - 1)) for node in range(size)]


tokens = st.integers(0, 3)  # few, so that candidates share prefixes
candidate_lists = st.lists(st.lists(tokens, max_size=6), max_size=6)
limits = st.integers(0, 8) | st.just(UNLIMITED)


def ancestors(parents: Sequence[int], node: int) -> list[int]:
    """The node and everything above it but the root."""
    return [] if node == tree.ROOT else [node, *ancestors(parents, parents[node])]


@given(trees())
def test_depths_count_the_nodes_above(parents: list[int]) -> None:
    counted = [len(ancestors(parents, node)) for node in range(len(parents))]
    assert tree.depths(np.array(parents, dtype=np.int64)).tolist() == counted
    assert tree.row_depths(np.array(parents, dtype=np.int64)).tolist() == [0, *counted]


@given(trees())
def test_mask_shows_the_root_a_node_and_what_is_above_it(parents: list[int]) -> None:
    mask = tree.ancestor_mask(np.array(parents, dtype=np.int64))
    rows = len(parents) + 1
    assert (mask.shape, mask.dtype) == ((rows, rows), np.bool_)
    for row in range(rows):
        seen = {0} | {node + 1 for node in ancestors(parents, row - 1)}
        assert set(np.flatnonzero(mask[row]).tolist()) == seen


@given(st.integers(0, 9))
def test_a_chain_sees_everything_before_it(length: int) -> None:
    parents = np.arange(-1, length - 1)
    assert tree.is_chain(parents)
    assert tree.ancestor_mask(parents).tolist() == [[c <= r for c in range(length + 1)] for r in range(length + 1)]


@given(trees())
def test_a_chain_is_a_tree_where_nobody_has_two_children_or_skips_one(parents: list[int]) -> None:
    chain = all(len(ancestors(parents, node)) == node + 1 for node in range(len(parents)))
    assert tree.is_chain(np.array(parents, dtype=np.int64)) is chain


def prefixes(candidates: Sequence[Sequence[int]], max_depth: int) -> list[tuple[int, ...]]:
    """Every prefix of the candidates once, in the order of asking."""
    asked = [tuple(c[:length]) for c in candidates for length in range(1, min(len(c), max_depth) + 1)]
    return list(dict.fromkeys(asked))


@given(candidate_lists, limits, limits)
def test_merging_keeps_the_first_distinct_prefixes(candidates: list[list[int]], max_nodes: int, max_depth: int) -> None:
    merged, parents = tree.merge_candidates(candidates, max_nodes, max_depth)
    paths = [tuple(merged[above] for above in ancestors(parents, node)[::-1]) for node in range(len(merged))]
    assert paths == prefixes(candidates, max_depth)[:max_nodes]
    assert all(parent < node for node, parent in enumerate(parents))


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_merging_takes_any_sequence_of_integers(kind: type) -> None:
    merged = tree.merge_candidates([kind([4, 5]), kind([4, 6])], 9, 9)
    assert merged == ([4, 5, 6], [-1, 0, 0])
    assert all(type(value) is int for values in merged for value in values)
