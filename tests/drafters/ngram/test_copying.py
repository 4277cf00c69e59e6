"""What holds for every drafter that copies from its own sequence, and what a step costs in a long one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.drafters.ngram.copyspec import CopySpec
from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.protocols import DraftRequest
from draftmux.types import Budget, Context, Draft

if TYPE_CHECKING:
    from draftmux.drafting import SequenceDrafter

MakeContext = Callable[[Sequence[int] | NDArray[np.int64]], Context]

CLIPPED = [
    PromptLookup(),
    PromptLookup(max_n=4, min_n=2, length=4, position="first"),
    PromptLookup(max_n=5, length=12, growth=1.5),
    CopySpec(),
    CopySpec(gamma=1, length=5),
    ContextCopy(),
    ContextCopy(min_match=2, max_branches=3, max_depth=6, max_scan=5),
]
PERIODIC = [
    PromptLookup(periodic=True),
    PromptLookup(max_n=5, length=12, growth=2, periodic=True),
    CopySpec(gamma=2, periodic=True),
    ContextCopy(min_match=2, periodic=True),
]
TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=60))
SMALL = st.integers(0, 12)
BUDGETS = st.builds(Budget, SMALL, SMALL, SMALL) | st.just(Budget())


def propose(drafter: SequenceDrafter, context: Context, budget: Budget | None = None, state: object = None) -> Draft:
    request = DraftRequest(context, drafter.begin(context) if state is None else state, budget or Budget())
    return drafter.propose([request])[0]


def branches(draft: Draft) -> list[list[int]]:
    leaves = set(range(len(draft))) - set(draft.parents.tolist())
    return [draft.tokens[draft.path_to(leaf)].tolist() for leaf in sorted(leaves)]


def shortest_match(drafter: SequenceDrafter) -> int:
    return next(int(getattr(drafter, name)) for name in ("min_n", "gamma", "min_match") if hasattr(drafter, name))


def grown_from(text: list[int], end: int, length: int) -> list[int]:
    grown = list(text)
    while len(grown) < len(text) + length:
        grown.append(grown[len(grown) - (len(text) - 1 - end)])
    return grown[len(text) :]


@pytest.mark.parametrize("drafter", CLIPPED + PERIODIC, ids=repr)
@given(text=TEXTS, budget=BUDGETS)
def test_draft_keeps_its_budget_and_is_a_trie(
    drafter: SequenceDrafter, make_context: MakeContext, text: list[int], budget: Budget
) -> None:
    draft = propose(drafter, make_context(text), budget)
    assert len(draft) <= budget.max_nodes
    assert draft.depths.max(initial=0) <= budget.max_depth
    assert len(branches(draft)) <= budget.max_branches
    assert len(draft.children) == len(draft)  # no two siblings with the same token
    assert draft.q is None
    assert drafter.emits.tree or len(branches(draft)) <= 1


@pytest.mark.parametrize("drafter", CLIPPED + PERIODIC, ids=repr)
@given(text=TEXTS)
def test_every_branch_followed_the_suffix_before(
    drafter: SequenceDrafter, make_context: MakeContext, text: list[int]
) -> None:
    size = shortest_match(drafter)
    ends = [end for end in range(size - 1, len(text) - 1) if text[end - size + 1 : end + 1] == text[-size:]]
    for branch in branches(propose(drafter, make_context(text))):
        if drafter in PERIODIC:
            assert branch in [grown_from(text, end, len(branch)) for end in ends]
        else:
            assert branch in [text[end + 1 : end + 1 + len(branch)] for end in ends]


@pytest.mark.parametrize("drafter", CLIPPED, ids=repr)
@given(text=TEXTS)
def test_a_match_gives_a_draft_and_no_match_gives_none(
    drafter: SequenceDrafter, make_context: MakeContext, text: list[int]
) -> None:
    size = shortest_match(drafter)
    matched = any(text[end - size + 1 : end + 1] == text[-size:] for end in range(size - 1, len(text) - 1))
    assert (len(propose(drafter, make_context(text))) > 0) == matched


@pytest.mark.parametrize("drafter", CLIPPED + PERIODIC, ids=repr)
@given(text=TEXTS, cuts=st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_a_drafter_that_sat_out_or_was_rejected_drafts_like_a_fresh_one(
    drafter: SequenceDrafter, make_context: MakeContext, text: list[int], cuts: list[int]
) -> None:
    cuts = sorted({min(cut, len(text)) for cut in cuts})
    state = drafter.begin(make_context(text[: cuts[0]]))
    for cut in [*cuts, len(text)]:  # most of these drafts are wrong about the text that follows
        context = make_context(text[:cut])
        late, fresh = propose(drafter, context, state=state), propose(drafter, context)
        assert late.tokens.tolist() == fresh.tokens.tolist()
        assert late.parents.tolist() == fresh.parents.tolist()


def natural(length: int) -> NDArray[np.int64]:
    """Zipf-distributed tokens with repeats planted every 200."""
    rng = np.random.default_rng(0)
    text = rng.zipf(1.3, length) % 50_000
    for start in range(1000, length - 200, 200):
        source = rng.integers(0, start - 100)
        text[start : start + 50] = text[source : source + 50]
    return text


@pytest.mark.parametrize("drafter", CLIPPED + PERIODIC, ids=repr)
@pytest.mark.parametrize("text", [natural(50_200), np.full(50_200, 7)], ids=["natural", "all equal"])
def test_a_step_at_50000_tokens_takes_less_than_a_millisecond(
    drafter: SequenceDrafter, make_context: MakeContext, text: NDArray[np.int64]
) -> None:
    state = drafter.begin(make_context(text[:50_000]))
    seconds = []
    for length in range(50_001, 50_201):
        context = make_context(text[:length])
        start = time.perf_counter()
        propose(drafter, context, state=state)
        seconds.append(time.perf_counter() - start)
    assert state.length == len(text)
    assert median(seconds) < 1e-3
