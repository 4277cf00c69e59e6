"""The suffix array and the search in it against scans of the documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

INSTALL = "install it: pip install -e plugins/draftmux-rest"
search = pytest.importorskip("draftmux_rest.search", reason=INSTALL)
build = pytest.importorskip("draftmux_rest.build", reason=INSTALL)

MakeStore = Callable[[Sequence[Sequence[int]]], Any]
LETTERS = st.integers(0, 2)
DOCUMENTS = st.lists(st.lists(LETTERS, min_size=1, max_size=20), max_size=6)
TEXTS = st.lists(LETTERS, min_size=1, max_size=12)


def followers(documents: Sequence[Sequence[int]], end: Sequence[int], length: int) -> list[list[int]]:
    """What follows each place where `end` stands in a document, if anything does, sorted."""
    size = len(end)
    return sorted(
        list(document[at + size : at + size + length])
        for document in documents
        for at in range(len(document) - size)
        if list(document[at : at + size]) == list(end)
    )


def cut(rows: Any) -> list[list[int]]:
    """Continuations up to their first border."""
    return [row[: row.index(-1)] if -1 in row else row for row in rows.tolist()]


@pytest.mark.parametrize("largest", [1, 255, 256, 65_535, 65_536, 2**31 - 2])
@given(data=st.data())
def test_suffixes_are_sorted_for_every_size_of_vocabulary(largest: int, data: Any) -> None:
    ids = st.sampled_from([-1, 0, 1, largest // 2, largest - 1, largest])
    tokens = np.array(data.draw(st.lists(ids, min_size=1, max_size=40)), dtype=np.int32)
    array = build.suffix_array(tokens)
    assert array.dtype == np.int32
    assert array.tolist() == sorted(range(len(tokens)), key=lambda at: tokens[at:].tolist())


@given(documents=DOCUMENTS, text=TEXTS, shortest=st.integers(1, 4), longest=st.integers(4, 8))
def test_the_longest_match_and_all_its_continuations_are_found(
    make_store: MakeStore, documents: list[list[int]], text: list[int], shortest: int, longest: int
) -> None:
    store, query = make_store(documents), text[-longest:]
    spans = [span for span in range(shortest, len(query) + 1) if followers(documents, query[-span:], 1)]
    hits = search.longest_match(store, query, shortest)
    assert (hits.span if hits else None) == (max(spans) if spans else None)
    if hits:
        rows = cut(search.continuations(store, hits, 5, 10**6))
        assert rows == followers(documents, query[-hits.span :], 5)


def test_a_match_never_runs_across_a_border(make_store: MakeStore) -> None:
    store = make_store([[1, 2, 3], [4, 5, 6], [3, 4, 9]])
    hits = search.longest_match(store, [2, 3, 4], 1)
    assert hits.span == 2  # 3 4 in the last document; 2 3 4 only runs across the first border
    assert cut(search.continuations(store, hits, 5, 10)) == [[9]]
    assert search.longest_match(store, [2, 3], 2) is None  # a document ends there, and nothing follows
    assert search.longest_match(store, [1, 2], 2).span == 2


def test_of_many_hits_some_at_even_distances_are_taken(make_store: MakeStore) -> None:
    store = make_store([[7, other] for other in range(100)])
    hits = search.longest_match(store, [7], 1)
    taken = [row[0] for row in search.continuations(store, hits, 1, 10).tolist()]
    assert taken == list(range(0, 100, 10))
    uneven = [row[0] for row in search.continuations(store, hits, 1, 30).tolist()]
    assert len(set(uneven)) == 30 and set(np.diff(uneven)) == {3, 4}
    assert len(search.continuations(store, hits, 1, 1000)) == 100


def test_a_token_that_the_corpus_lacks_is_no_match(make_store: MakeStore) -> None:
    store = make_store([[1, 2, 3]])
    for query in ([9], [0], [1, 9], [2**40], [1, 2**31 - 1]):
        assert search.longest_match(store, query, 1) is None
    assert search.longest_match(make_store([]), [1, 2], 1) is None
