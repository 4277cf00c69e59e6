"""Lengths that drafts would have had: those of really playing them, known as soon as the text says so."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from draftmux.counterfactual import Counterfactuals, Walk
from draftmux.testing import strategies as some
from draftmux.types import Draft


def shared(draft: Draft, tokens: list[int]) -> int:
    """By the book: the deepest node whose path is what the text begins with."""
    paths = [draft.tokens[draft.path_to(node)].tolist() for node in range(len(draft))]
    return max((len(path) for path in paths if path == tokens[: len(path)]), default=0)


@given(draft=some.draft_trees(4), tokens=st.lists(st.integers(0, 3), min_size=13, max_size=20), data=st.data())
def test_however_the_text_comes_in(draft: Draft, tokens: list[int], data: Any) -> None:
    waiting = Counterfactuals()
    waiting.add(7, draft)
    found: list[Walk] = []
    at = 0
    while at < len(tokens):
        step = data.draw(st.integers(1, 4))
        found += waiting.follow(tokens[at : at + step])
        at += step
    [walk] = found
    assert walk.arm == 7 and walk.depth == shared(draft, tokens)
    path = draft.path_to(walk.node)
    assert draft.tokens[path].tolist() == tokens[: walk.depth]


def test_a_draft_that_the_text_has_not_passed_yet_waits() -> None:
    waiting = Counterfactuals()
    waiting.add(0, Draft.chain([1, 2, 3]))
    waiting.add(1, Draft.chain([1, 9]))
    waiting.add(2, Draft.empty())
    assert [(w.arm, w.depth) for w in waiting.follow([1])] == [(2, 0)]
    waiting.add(3, Draft.chain([2]))
    assert sorted((w.arm, w.depth) for w in waiting.follow([2])) == [(1, 1), (3, 1)]
    assert [(w.arm, w.depth) for w in waiting.follow([3])] == [(0, 3)]
    assert not waiting.walks
