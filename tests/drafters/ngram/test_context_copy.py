"""Context copy: worked examples, what counts as a branch, and blanks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.errors import PluginError
from draftmux.protocols import Drafter, DraftRequest, Resources
from draftmux.types import Budget, Context, Draft

MakeContext = Callable[[Sequence[int]], Context]


def propose(drafter: Drafter, context: Context, budget: Budget | None = None) -> Draft:
    return drafter.propose([DraftRequest(context, drafter.begin(context), budget or Budget())])[0]


def test_two_branches_from_the_root_the_newest_first(make_context: MakeContext) -> None:
    text = [1, 2, 3, 4, 5, 9, 9, 1, 2, 3, 4, 5, 7, 8, 1, 2, 3, 4, 5]
    draft = propose(ContextCopy(), make_context(text))
    assert draft.tokens.tolist() == [7, 8, 1, 2, 3, 4, 5, 9, 9, 1, 2, 3, 4, 5, 7, 8, 1, 2, 3, 4, 5]
    assert draft.parents.tolist() == [-1, *range(6), -1, *range(7, 20)]


def test_shared_prefix_is_one_node(make_context: MakeContext) -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 8, 1, 2, 3, 4, 5]
    draft = propose(ContextCopy(max_depth=4), make_context(text))
    assert draft.tokens.tolist() == [6, 8, 1, 2, 7, 1, 2]
    assert draft.parents.tolist() == [-1, 0, 1, 2, 0, 4, 5]


def test_repetitive_text_gives_one_chain(make_context: MakeContext) -> None:
    draft = propose(ContextCopy(), make_context([7] * 9))
    assert draft.tokens.tolist() == [7] * 4
    assert draft.parents.tolist() == [-1, 0, 1, 2]
    draft = propose(ContextCopy(max_depth=6, periodic=True), make_context([7] * 9))
    assert draft.tokens.tolist() == [7] * 6
    assert draft.parents.tolist() == [-1, 0, 1, 2, 3, 4]


def test_no_match_gives_an_empty_draft(make_context: MakeContext) -> None:
    assert len(propose(ContextCopy(), make_context([1, 2, 3, 4, 5]))) == 0
    assert len(propose(ContextCopy(), make_context([1, 2, 3, 4, 5, 0, 2, 3, 4, 5]))) == 0


def test_a_branch_that_adds_nothing_does_not_count(make_context: MakeContext) -> None:
    text = [1, 9, 8, *[1, 2, 3] * 10, 1]  # ten times the same line, then another
    draft = propose(ContextCopy(min_match=1, max_branches=2, max_depth=2), make_context(text))
    assert draft.tokens.tolist() == [2, 3, 9, 8]
    draft = propose(ContextCopy(min_match=1, max_branches=2, max_depth=2, max_scan=10), make_context(text))
    assert draft.tokens.tolist() == [2, 3]


def test_max_branches_keeps_the_newest(make_context: MakeContext) -> None:
    context = make_context([1, 2, 1, 3, 1, 4, 1])
    assert propose(ContextCopy(min_match=1, max_depth=1), context).tokens.tolist() == [4, 3, 2]
    assert propose(ContextCopy(min_match=1, max_depth=1, max_branches=2), context).tokens.tolist() == [4, 3]


def test_a_short_budget_goes_to_the_newest(make_context: MakeContext) -> None:
    context = make_context([1, 2, 3, 4, 1, 5, 6, 7, 1])
    drafter = ContextCopy(min_match=1, max_depth=3)
    assert propose(drafter, context).tokens.tolist() == [5, 6, 7, 2, 3, 4]
    assert propose(drafter, context, Budget(max_nodes=4)).tokens.tolist() == [5, 6, 7, 2]
    assert propose(drafter, context, Budget(max_depth=1)).tokens.tolist() == [5, 2]
    assert propose(drafter, context, Budget(max_branches=1)).tokens.tolist() == [5, 6, 7]
    assert len(propose(drafter, context, Budget(max_branches=0))) == 0


class Letters:
    """Decodes token i as the i-th of these strings, and drops leading spaces as some tokenizers do."""

    pieces = ("a", " ", "\n", "\t\t")

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in tokens).lstrip(" ")


@pytest.mark.parametrize("blank", [[1, 1], [1, 2], [3, 2]])
def test_skip_blank_ignores_matches_of_white_space_alone(make_context: MakeContext, blank: list[int]) -> None:
    resources = Resources(tokenizer=Letters())
    skipping = ContextCopy(min_match=2, skip_blank=True).bind(resources)
    trusting = ContextCopy(min_match=2).bind(resources)
    context = make_context([*blank, 0, *blank])
    assert len(propose(skipping, context)) == 0
    assert propose(trusting, context).tokens.tolist() == [0, *blank]
    context = make_context([0, 1, 0, 1, 0, 1])
    assert propose(skipping, context).tokens.tolist() == propose(trusting, context).tokens.tolist() == [0, 1, 0, 1]


def test_skip_blank_catches_up_after_blanks(make_context: MakeContext) -> None:
    drafter = ContextCopy(min_match=2, skip_blank=True).bind(Resources(tokenizer=Letters()))
    text = [0, 0, 3, 1, 1, 0, 0]
    state = drafter.begin(make_context(text[:2]))
    assert len(drafter.propose([DraftRequest(make_context(text[:5]), state, Budget())])[0]) == 0
    draft = drafter.propose([DraftRequest(make_context(text), state, Budget())])[0]
    assert draft.tokens.tolist() == [3, 1, 1, 0, 0]


def test_skip_blank_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(PluginError, match="needs a tokenizer"):
        ContextCopy(skip_blank=True).bind(Resources())
