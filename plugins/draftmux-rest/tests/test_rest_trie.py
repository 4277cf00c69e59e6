"""Counts, order and closure of the trie against prefixes counted one by one; budgets."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.types import Budget, Draft

trie = pytest.importorskip("draftmux_rest.trie", reason="install it: pip install -e plugins/draftmux-rest")

ROWS = st.integers(1, 6).flatmap(
    lambda length: st.lists(st.lists(st.integers(-1, 3), min_size=length, max_size=length), min_size=1, max_size=30)
)
SMALL = st.integers(0, 12)
BUDGETS = st.builds(Budget, SMALL, st.just(6), SMALL) | st.just(Budget())


def counted(rows: list[list[int]]) -> Counter[tuple[int, ...]]:
    """How many continuations begin with each prefix; a border ends one."""
    texts = [row[: row.index(-1)] if -1 in row else row for row in rows]
    return Counter(tuple(text[:depth]) for text in texts for depth in range(1, len(text) + 1))


def paths(draft: Draft) -> list[tuple[int, ...]]:
    return [tuple(draft.tokens[draft.path_to(node)].tolist()) for node in range(len(draft))]


def leaves(draft: Draft) -> int:
    return len(draft) - len(set(draft.parents.tolist()) - {-1})


@given(rows=ROWS)
def test_nodes_are_the_prefixes_and_counts_are_right(rows: list[list[int]]) -> None:
    found = trie.count_nodes(np.array(sorted(rows), dtype=np.int32))
    draft = Draft(found.tokens, found.parents)
    assert len(set(paths(draft))) == len(draft)  # no two siblings with the same token
    assert dict(zip(paths(draft), found.counts.tolist(), strict=True)) == counted(rows)


@given(rows=ROWS, nodes=st.integers(1, 20))
def test_the_most_frequent_nodes_are_kept_with_their_parents(rows: list[list[int]], nodes: int) -> None:
    counts = counted(rows)
    draft = trie.most_frequent(trie.count_nodes(np.array(sorted(rows), dtype=np.int32)), Budget(max_nodes=nodes))
    ranked = sorted(counts, key=lambda path: (-counts[path], len(path), path))
    assert paths(draft) == ranked[:nodes]


@given(rows=ROWS, budget=BUDGETS)
def test_the_budget_is_kept(rows: list[list[int]], budget: Budget) -> None:
    counts = counted(rows)
    draft = trie.most_frequent(trie.count_nodes(np.array(sorted(rows), dtype=np.int32)), budget)
    assert len(draft) <= budget.max_nodes
    assert leaves(draft) <= budget.max_branches
    assert set(paths(draft)) <= set(counts)
    if min(budget.max_nodes, budget.max_branches) and counts:
        assert paths(draft)[0] == min(counts, key=lambda path: (-counts[path], len(path), path))


def test_one_branch_is_the_most_frequent_one_to_its_end() -> None:
    rows = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 4], [5, 6, 7], [5, 6, 7]], dtype=np.int32)
    chain = trie.most_frequent(trie.count_nodes(rows), Budget(max_branches=1))
    assert chain.tokens.tolist() == [1, 2, 3]
    two = trie.most_frequent(trie.count_nodes(rows), Budget(max_branches=2))
    assert paths(two) == [(1,), (1, 2), (5,), (5, 6), (1, 2, 3), (5, 6, 7)]


def test_a_limit_on_branches_bounds_what_is_looked_at() -> None:
    rows = np.arange(10 * trie.SCANNED, dtype=np.int32)[:, None].repeat(3, axis=1)
    draft = trie.most_frequent(trie.count_nodes(rows), Budget(max_branches=3, max_nodes=8))
    assert draft.tokens.tolist() == [0, 1, 2] and leaves(draft) == 3
