"""CopySpec: the first occurrence, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from draftmux.drafters.ngram.copyspec import CopySpec
from draftmux.types import Budget, Context

MakeContext = Callable[[Sequence[int]], Context]


def draft(drafter: CopySpec, context: Context, budget: Budget | None = None) -> list[int]:
    return list(drafter.propose_one(context, drafter.begin(context), budget or Budget()).tokens)


def test_copies_after_the_first_occurrence(make_context: MakeContext) -> None:
    context = make_context([1, 2, 3, 4, 5, 1, 2, 3, 6, 7, 1, 2, 3])
    assert draft(CopySpec(length=4), context) == [4, 5, 1, 2]
    assert draft(CopySpec(), context, Budget(max_nodes=3)) == [4, 5, 1]
    assert draft(CopySpec(gamma=4), context) == []


def test_is_clipped_at_the_end_or_repeats(make_context: MakeContext) -> None:
    context = make_context([1, 2, 3, 4, 1, 2, 3])
    assert draft(CopySpec(), context) == [4, 1, 2, 3]
    assert draft(CopySpec(periodic=True), context) == [4, 1, 2, 3, 4, 1, 2, 3, 4, 1]


@given(text=st.lists(st.integers(0, 2), min_size=1, max_size=60), gamma=st.integers(1, 4))
def test_equals_a_scan(make_context: MakeContext, text: list[int], gamma: int) -> None:
    ends = [end for end in range(gamma - 1, len(text) - 1) if text[end - gamma + 1 : end + 1] == text[-gamma:]]
    copied = text[ends[0] + 1 : ends[0] + 11] if ends else []
    assert draft(CopySpec(gamma=gamma), make_context(text)) == copied
