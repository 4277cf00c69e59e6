"""Labels: verbatim repetition, by hand and by the book; and where a copy would have gone on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftmux.counterfactual import Walk
from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.drafters.ngram.index import NgramIndex
from draftmux.generation import Generation
from draftmux.routers.linear_probe.labels import GOES_ON, Labelling, hits, repeated
from draftmux.routers.replays import Copying
from draftmux.types import Budget, Context

TEXTS = st.lists(st.integers(0, 2), max_size=30)


def by_hand(tokens: str, size: int, never: str = "") -> str:
    """Letters for ids."""
    marked = repeated([ord(letter) for letter in tokens], size, [ord(letter) for letter in never])
    return "".join("x" if mark else "." for mark in marked)


def test_by_hand() -> None:
    assert by_hand("abcd-abcd", 5) == "........."
    assert by_hand("abcde-abcde", 5) == "......xxxxx"
    assert by_hand("abcdef-abcdef", 5) == ".......xxxxxx"
    assert by_hand("aaaaaaa", 3) == ".xxxxxx"
    assert by_hand("ab-ab-ab", 2) == "...xxxxx"
    assert by_hand("abc|abc|abc", 3, "|") == "....xxx.xxx"
    assert by_hand("ab|c-ab|c", 3, "|") == "........."


@given(tokens=TEXTS, size=st.integers(1, 5))
def test_by_the_book(tokens: list[int], size: int) -> None:
    expected = [False] * len(tokens)
    for end in range(size, len(tokens) + 1):
        gram = tokens[end - size : end]
        if any(tokens[at : at + size] == gram for at in range(end - size)):
            expected[end - size : end] = [True] * size
    assert repeated(tokens, size).tolist() == expected


@given(tokens=TEXTS, size=st.integers(1, 3), branches=st.integers(1, 3), first=st.integers(0, 10))
def test_hits_are_what_the_copying_drafter_would_have_had_accepted(
    tokens: list[int], size: int, branches: int, first: int
) -> None:
    depth = 6
    drafter = ContextCopy(min_match=size, max_branches=branches, max_depth=depth)
    expected = []
    for root in range(max(first, size - 1), len(tokens) - 1):
        index = NgramIndex([size], np.zeros(0, dtype=np.int64))
        context = Context("one", np.array(tokens[: root + 1]), 0, 99, {}, (), Generation())
        draft = drafter.propose_one(context, index, Budget())
        if len(draft):
            walk = Walk(0, draft)
            walk.follow(tokens[root + 1 :])
            expected.append((root, walk.depth))
    copying = Copying(size, branches, depth)
    found = hits(tokens, copying, first)
    assert [(hit.root, min(hit.followed, depth)) for hit in found] == expected
    undecided = [hit for hit in found if hit.root + 1 + hit.followed == len(tokens) and hit.followed < GOES_ON]
    assert hits(tokens, copying, first, ended=False) == [hit for hit in found if hit not in undecided]
    assert all(hit.is_copy == (hit.followed >= GOES_ON) for hit in found)


def labelling(kind: str) -> Labelling:
    return Labelling(kind, 3, Copying(2, 1, 6), 2, frozenset())


def test_states_are_labelled_by_what_comes_after_them() -> None:
    """abc|abc: the second abc repeats. The state before a root decides, so that of a is for the copy after ab."""
    ids = [ord(letter) for letter in "abcx-abcy."]
    repeats = labelling("repeats")
    assert repeats.shifts == (0, 1, 2)
    marked = [0, 0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert repeats.of(ids, 5, True).tolist() == [marked[place : place + 3] for place in range(8)]
    copies = labelling("copies")
    assert copies.shifts == (2,)
    # After "ab" the copy offers "cx-ab" and the text goes on with c; after "bc" it offers "x-abc", and y comes.
    assert copies.of(ids, 5, True)[:, 0].tolist() == [-1, -1, -1, -1, -1, 0, 0, -1]
    longer = [ord(letter) for letter in "abcx-abcxy"]
    assert copies.of(longer, 5, True)[:, 0].tolist() == [-1, -1, -1, -1, -1, 1, 0, 0]
    assert copies.of(longer[:8], 5, False)[:, 0].tolist() == [-1] * 6, "cut before it is decided"
