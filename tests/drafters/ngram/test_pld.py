"""Prompt lookup: which match it takes and how much it drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.types import Budget, Context

MakeContext = Callable[[Sequence[int]], Context]
TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=60))


def draft(drafter: PromptLookup, context: Context, budget: Budget | None = None) -> list[int]:
    return list(drafter.propose_one(context, drafter.begin(context), budget or Budget()).tokens)


def test_longest_n_gram_goes_first(make_context: MakeContext) -> None:
    context = make_context([1, 2, 3, 4, 9, 3, 8, 1, 2, 3])
    assert draft(PromptLookup(length=2), context) == [4, 9]
    assert draft(PromptLookup(length=2, max_n=1), context) == [8, 1]
    assert draft(PromptLookup(length=2, max_n=1, position="first"), context) == [4, 9]


def test_min_n_ignores_short_matches(make_context: MakeContext) -> None:
    assert draft(PromptLookup(), make_context([5, 6, 5])) == [6, 5]
    assert draft(PromptLookup(min_n=2), make_context([5, 6, 5])) == []


def test_latest_prefers_a_match_with_a_full_draft_after_it(make_context: MakeContext) -> None:
    context = make_context([1, 2, 3, 4, 1, 5, 1])
    assert draft(PromptLookup(max_n=1, length=2), context) == [5, 1]
    assert draft(PromptLookup(max_n=1, length=3), context) == [2, 3, 4]
    assert draft(PromptLookup(max_n=1, length=3), context, Budget(max_nodes=2)) == [5, 1]
    assert draft(PromptLookup(max_n=1, length=9), context) == [2, 3, 4, 1, 5, 1]
    assert draft(PromptLookup(max_n=1, length=5, periodic=True), context) == [5, 1, 5, 1, 5]


def test_growth_drafts_little_after_a_weak_match(make_context: MakeContext) -> None:
    drafter = PromptLookup(length=12, growth=2)
    assert len(draft(drafter, make_context([*range(20), 0]))) == 4  # 2 * (1 + 1)
    assert len(draft(drafter, make_context([*range(20), 0, 1, 2, 3]))) == 10  # a match of 4, though n ends at 3
    assert len(draft(drafter, make_context([*range(20), *range(9)]))) == 12  # never above `length`
    assert len(draft(PromptLookup(length=12, growth=0.5), make_context([7] * 50))) == 12


def expected(text: list[int], drafter: PromptLookup) -> list[int]:
    """The rule in its own words, by scanning."""
    total = len(text)
    for n in range(drafter.max_n, drafter.min_n - 1, -1):
        ends = [end for end in range(n - 1, total - 1) if text[end - n + 1 : end + 1] == text[-n:]]
        if not ends:
            continue
        full = [end for end in ends if total - 1 - end >= drafter.length]
        latest = ends[-1] if drafter.periodic else max(full, default=ends[0])
        end = latest if drafter.position == "latest" else ends[0]
        match = max(m for m in range(1, end + 2) if text[end + 1 - m : end + 1] == text[total - m :])
        length = min(drafter.length, floor(drafter.growth * (match + 1))) if drafter.growth else drafter.length
        after = text[end + 1 :]
        return [after[i % len(after)] for i in range(length)] if drafter.periodic else after[:length]
    return []


@given(
    text=TEXTS,
    drafter=st.builds(
        PromptLookup,
        max_n=st.integers(2, 5),
        min_n=st.integers(1, 2),
        length=st.integers(1, 12),
        position=st.sampled_from(["latest", "first"]),
        periodic=st.booleans(),
        growth=st.sampled_from([0, 0.25, 0.5, 1, 1.5, 2]),
    ),
)
def test_draft_equals_the_rule(make_context: MakeContext, text: list[int], drafter: PromptLookup) -> None:
    assert draft(drafter, make_context(text)) == expected(text, drafter)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'min_n' must not be above 'max_n': 4 > 3"):
        PromptLookup(min_n=4)
    with pytest.raises(ValueError, match="length"):
        PromptLookup(length=0)
    with pytest.raises(ValueError, match="position"):
        PromptLookup(position="last")  # type: ignore[arg-type]
