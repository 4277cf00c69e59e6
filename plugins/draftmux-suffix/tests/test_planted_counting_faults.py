"""Faults of counting, each with a property that notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from draftmux.testing.planted import Fault, Faults, check_caught

pytest.importorskip("draftmux_suffix", reason="install it: pip install -e plugins/draftmux-suffix")

from draftmux_suffix.trie import UNFOLDED, SuffixTrie

FAULTS = Faults()  # filled by the decorators below, before pytest reads it
DEPTH = 6


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


# The properties, on fixed inputs.


def text(seed: int, length: int = 60, letters: int = 4) -> list[int]:
    return np.random.default_rng(seed).integers(0, letters, length).tolist()


def check_counts(trie: SuffixTrie, texts: Sequence[Sequence[int]]) -> None:
    """Counts of all short strings of the texts, and of what follows each, equal their occurrences."""
    counts = Counter(
        tuple(t[start:end])
        for t in texts
        for start in range(len(t))
        for end in range(start + 1, start + DEPTH + 1)
        if end <= len(t)
    )
    short = {string for size in (1, 2, 3) for string in product(range(4), repeat=size)}
    for string in short | set(counts):
        point = trie.find(string)
        assert (trie.count(point) if point else 0) == counts[string], string
        followers = {token: count for token, count, _ in trie.followers(point)} if point else {}
        after = {token: counts[*string, token] for token in range(4) if counts[*string, token]}
        assert followers == after, string
        assert list(followers.values()) == sorted(after.values(), reverse=True), string


def counts_what_is_there() -> None:
    trie = SuffixTrie(DEPTH)
    trie.append(trie.open(), text(0))
    check_counts(trie, [text(0)])


def forgets_what_is_removed() -> None:
    trie = SuffixTrie(DEPTH)
    opened = [trie.open() for _ in range(4)]
    for seed, added in enumerate(opened):
        trie.append(added, text(seed))
    trie.remove(opened[1])
    check_counts(trie, [text(0), text(2), text(3)])
    trie.remove(opened[0])
    trie.append(trie.open(), text(5))
    check_counts(trie, [text(2), text(3), text(5)])


# The faults.


@FAULTS.breaks(counts_what_is_there)
def a_suffix_is_dropped_one_token_early(patch: Any) -> None:
    visit = SuffixTrie._visit

    def shallow(self: Any, node: int, token: int, text: Any) -> int:
        child = visit(self, node, token, text)
        return child if child >= 0 and self._level[child] + 1 < self.depth else -1

    patch.setattr(SuffixTrie, "_visit", shallow)


@FAULTS.breaks(counts_what_is_there)
def an_unfolded_leaf_forgets_what_followed_it(patch: Any) -> None:
    def unfold(self: Any, node: int) -> None:
        self._folded[node] = UNFOLDED

    patch.setattr(SuffixTrie, "_unfold", unfold)


@FAULTS.breaks(counts_what_is_there)
def a_folded_leaf_is_read_one_token_off(patch: Any) -> None:
    follower = SuffixTrie._follower
    patch.setattr(SuffixTrie, "_follower", lambda self, node, ahead: follower(self, node, ahead + 1))


@FAULTS.breaks(counts_what_is_there)
def children_are_not_kept_in_order(patch: Any) -> None:
    patch.setattr(SuffixTrie, "_swap", lambda *_: None)


@FAULTS.breaks(forgets_what_is_removed)
def counts_are_not_decremented(patch: Any) -> None:
    patch.setattr(SuffixTrie, "_lower", lambda *_: None)


@FAULTS.breaks(forgets_what_is_removed)
def only_the_first_suffix_is_subtracted(patch: Any) -> None:
    def remove(self: Any, text: Any) -> None:
        node = 0
        for token in text.tokens[: self.depth]:
            child = self._children[self._level[node]][node << 32 | token]
            folded = self._folded[child] != UNFOLDED
            self._lower(node, child)
            if folded:
                break
            node = child

    patch.setattr(SuffixTrie, "remove", remove)


@FAULTS.breaks(forgets_what_is_removed)
def a_row_that_is_used_again_keeps_its_count(patch: Any) -> None:
    def row(self: Any, *values: int) -> int:
        used = bool(self._free)
        found = original(self, *values)
        self._count[found] -= used
        return found

    original = SuffixTrie._row
    patch.setattr(SuffixTrie, "_row", row)
