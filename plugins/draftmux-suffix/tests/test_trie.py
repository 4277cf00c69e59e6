"""The trie against a count of all occurrences, and what it costs in a long text."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("draftmux_suffix", reason="install it: pip install -e plugins/draftmux-suffix")

from draftmux_suffix.trie import ROOT, Point, SuffixTrie

DEPTHS = st.integers(2, 7)
TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), max_size=40))
Counts = dict[tuple[int, ...], int]


def occurrences(texts: Iterable[Sequence[int]], depth: int) -> Counts:
    """How often every string of up to `depth` tokens stands in the texts."""
    return Counter(
        tuple(text[start:end])
        for text in texts
        for start in range(len(text))
        for end in range(start + 1, min(start + depth, len(text)) + 1)
    )


def counted(trie: SuffixTrie, letters: int = 4) -> Counts:
    """The same as the trie has it."""
    found: Counts = {}

    def below(string: tuple[int, ...], point: Point) -> None:
        found[string] = trie.count(point)
        for token, count, after in trie.followers(point):
            assert trie.step(point, token) == after
            assert trie.count(after) == count
            below((*string, token), after)

    for token in range(letters):
        point = trie.step((ROOT, 0), token)
        if point is not None:
            below((token,), point)
    return found


def trie_of(texts: Iterable[Sequence[int]], depth: int) -> SuffixTrie:
    trie = SuffixTrie(depth)
    for text in texts:
        trie.append(trie.open(), text)
    return trie


@given(text=TEXTS, depth=DEPTHS, cuts=st.lists(st.integers(0, 40), max_size=4))
def test_counts_equal_occurrences_however_the_text_arrived(text: list[int], depth: int, cuts: list[int]) -> None:
    trie = SuffixTrie(depth)
    growing, done = trie.open(), 0
    for cut in [*sorted(cuts), len(text)]:
        trie.append(growing, text[done:cut])
        done = max(done, min(cut, len(text)))
        assert counted(trie) == occurrences([text[:done]], depth)
    assert list(growing.tokens) == text


@given(text=TEXTS, depth=DEPTHS)
def test_matched_are_the_suffixes_that_stood_before(text: list[int], depth: int) -> None:
    trie = SuffixTrie(depth)
    growing = trie.open()
    trie.append(growing, text)
    counts = occurrences([text], depth)
    suffixes = [tuple(text[-size:]) for size in range(1, min(depth - 1, len(text)) + 1)]
    known = [suffix for suffix in suffixes if counts[suffix] > 1]
    assert [(node, 0) for node in growing.matched] == [trie.find(suffix) for suffix in known]
    assert [trie.count((node, 0)) for node in growing.matched] == [counts[suffix] for suffix in known]
    assert all(next(trie.followers((node, 0)), None) for node in growing.matched)


@given(text=TEXTS, depth=DEPTHS)
def test_followers_come_the_most_frequent_first_and_the_latest_before_others(text: list[int], depth: int) -> None:
    trie = trie_of([text], depth)
    for string in occurrences([text], depth - 1):
        point, size = trie.find(string), len(string)
        assert point is not None
        after = [text[end] for end in range(size, len(text)) if tuple(text[end - size : end]) == string]
        followers = [(token, count) for token, count, _ in trie.followers(point)]
        assert dict(followers) == Counter(after)
        assert [count for _, count in followers] == sorted(Counter(after).values(), reverse=True)
        if after:
            latest = max(Counter(after).items(), key=lambda item: (item[1], len(after) - after[::-1].index(item[0])))
            assert followers[0] == latest


@given(texts=st.lists(TEXTS, max_size=4), tail=TEXTS, depth=DEPTHS)
def test_matches_are_all_suffixes_that_occur(texts: list[list[int]], tail: list[int], depth: int) -> None:
    counts = occurrences(texts, depth)
    known = [size for size in range(1, min(len(tail), depth - 1) + 1) if counts[tuple(tail[-size:])]]
    trie = trie_of(texts, depth)
    assert trie.matches(tail) == [trie.find(tail[-size:]) for size in known]


@settings(max_examples=200)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), depth=DEPTHS, data=st.data())
def test_a_removed_text_was_never_there(texts: list[list[int]], depth: int, data: st.DataObject) -> None:
    trie = SuffixTrie(depth)
    kept = {}
    for text in texts:
        added = trie.open()
        trie.append(added, text)
        kept[added] = text
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(list(kept)))
            trie.remove(gone)
            del kept[gone]
        assert counted(trie) == occurrences(kept.values(), depth)
    for text in list(kept):
        trie.remove(text)
        del kept[text]
        assert counted(trie) == occurrences(kept.values(), depth)
    assert len(trie) == 0


def test_rows_of_removed_texts_are_used_again() -> None:
    rng = np.random.default_rng(0)
    trie, sizes, kept = SuffixTrie(8), [], []
    for _ in range(60):
        text = trie.open()
        trie.append(text, rng.integers(0, 50, 100).tolist())
        kept.append(text)
        if len(kept) > 5:
            trie.remove(kept.pop(0))
        sizes.append(len(trie._count))
    assert max(sizes[30:]) < 1.3 * max(sizes[:6])


@pytest.mark.parametrize("string", [(1, 2, 9), (9,), (1, 2, 3, 4)])
def test_what_does_not_occur_has_no_point(string: tuple[int, ...]) -> None:
    assert trie_of([[1, 2, 3, 4]], 3).find(string) is None


@given(text=TEXTS, depth=DEPTHS)
def test_likeliest_is_the_first_follower(text: list[int], depth: int) -> None:
    trie = trie_of([text], depth)
    for string in occurrences([text], depth):
        point = trie.find(string)
        assert point is not None
        assert trie.likeliest(point) == next(trie.followers(point), None)


def test_a_child_is_moved_only_when_its_rank_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time of a text with few different tokens would go there."""
    moves = []
    swap = SuffixTrie._swap

    def counted_swap(self: SuffixTrie, ranked: list[int], child: int, place: int) -> None:
        moves.append(place != self._place[child])
        swap(self, ranked, child, place)

    monkeypatch.setattr(SuffixTrie, "_swap", counted_swap)
    trie_of([np.random.default_rng(0).integers(0, 3, 2000).tolist()], 12)
    assert moves and all(moves)


def long_texts(length: int) -> dict[str, list[int]]:
    rng = np.random.default_rng(0)
    half = rng.integers(0, 50_000, length // 2).tolist()
    return {
        "random": rng.integers(0, 50_000, length).tolist(),
        "all equal": [7] * length,
        "said twice": half + half,  # the worst case: every string up to the depth occurs twice
    }


@pytest.mark.parametrize(("name", "bytes_per_token"), [("random", 400), ("said twice", 2500)])
def test_memory_is_linear_in_the_text(name: str, bytes_per_token: int) -> None:
    text = long_texts(10_000)[name]
    tracemalloc.start()
    trie = trie_of([text], 24)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert trie.find(text[-10:]) is not None
    assert used < bytes_per_token * len(text)


@pytest.mark.parametrize("tokens", long_texts(50_000).values(), ids=long_texts(2))
def test_a_token_at_50000_tokens_takes_less_than_a_millisecond(tokens: list[int]) -> None:
    trie = SuffixTrie(24)
    text = trie.open()
    trie.append(text, tokens[:49_800])
    seconds = []
    for token in tokens[49_800:]:
        start = time.perf_counter()
        trie.append(text, (token,))
        seconds.append(time.perf_counter() - start)
    assert len(text.tokens) == len(tokens)
    assert median(seconds) < 1e-3
