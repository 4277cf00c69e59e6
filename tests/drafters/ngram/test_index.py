"""The index against a brute-force scan, and its cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftmux.drafters.ngram.index import NgramIndex, continuation, match_length

SIZES = (1, 2, 3, 5)
TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=60))


def scan(text: list[int], size: int) -> list[int]:
    """Ends of all earlier occurrences of the last `size` tokens, oldest first."""
    return [end for end in range(size - 1, len(text) - 1) if text[end - size + 1 : end + 1] == text[-size:]]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_index_equals_scan_however_the_text_arrived(text: list[int], cuts: list[int]) -> None:
    tokens = np.array(text)
    index = NgramIndex(SIZES, tokens[:0])
    for cut in [*sorted(cuts), len(text)]:
        index.catch_up(tokens[:cut])
        seen = text[:cut]
        for size in SIZES:
            assert list(index.matches(size, oldest_first=True)) == scan(seen, size)
            assert list(index.matches(size)) == scan(seen, size)[::-1]
    assert index.length == len(text)


@given(text=TEXTS)
def test_live_suffix_is_never_a_match(text: list[int]) -> None:
    index = NgramIndex(SIZES, np.array(text))
    assert all(end < len(text) - 1 for size in SIZES for end in index.matches(size))


def test_catching_up_twice_changes_nothing() -> None:
    tokens = np.array([1, 2, 1, 2, 1])
    index = NgramIndex([2], tokens)
    index.catch_up(tokens)
    assert list(index.matches(2)) == [2]


@given(text=TEXTS.filter(lambda text: len(text) > 1), data=st.data(), length=st.integers(0, 20))
def test_continuation_is_clipped_or_periodic(text: list[int], data: st.DataObject, length: int) -> None:
    end = data.draw(st.integers(0, len(text) - 2))
    grown = list(text)
    for _ in range(length):  # LZ77: every new token equals the one a period before it
        grown.append(grown[len(grown) - (len(text) - 1 - end)])
    tokens = np.array(text)
    assert continuation(tokens, end, length, periodic=False).tolist() == text[end + 1 :][:length]
    assert continuation(tokens, end, length, periodic=True).tolist() == grown[len(text) :]


@given(text=TEXTS.filter(lambda text: len(text) > 1), data=st.data(), limit=st.integers(1, 20))
def test_match_length_counts_equal_tokens_backwards(text: list[int], data: st.DataObject, limit: int) -> None:
    end = data.draw(st.integers(0, len(text) - 2))
    equal = 0
    while equal < min(limit, end + 1) and text[end - equal] == text[-1 - equal]:
        equal += 1
    assert match_length(np.array(text), end, limit) == equal


def test_memory_is_linear_in_the_text() -> None:
    rng = np.random.default_rng(0)
    for tokens in (np.zeros(50_000, dtype=np.int64), rng.integers(0, 50_000, 50_000)):
        tracemalloc.start()
        index = NgramIndex([5], tokens)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert index.length == 50_000
        assert used < 1000 * len(tokens)
