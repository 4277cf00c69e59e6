"""Drafts and scores against a search by brute force over the committed text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.types import Budget

suffix = pytest.importorskip("draftmux_suffix.drafter", reason="install it: pip install -e plugins/draftmux-suffix")

TEXTS = st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters - 1), min_size=1, max_size=40))
SMALL = st.integers(0, 9)
BUDGETS = st.builds(Budget, SMALL, SMALL, SMALL) | st.just(Budget())
OPTIONS = st.fixed_dictionaries(
    {
        "depth": st.integers(2, 9),
        "factor": st.sampled_from((0.0, 0.5, 1.0, 2.0)),
        "offset": st.sampled_from((-1.0, 0.0, 1.0, 2.5)),
        "max_spec": st.integers(1, 8),
        "min_prob": st.sampled_from((0.0, 0.1, 0.3, 1.0)),
    }
)


def guess(options: Any, text: Sequence[int], budget: Budget | None = None) -> Any:
    state = suffix.Suffixes(options, None)
    return state.guess(np.asarray(text, dtype=np.int64), budget or Budget())


class Brute:
    """What follows a string in a text, by looking at every position."""

    def __init__(self, text: Sequence[int], depth: int) -> None:
        self.text, self.depth = text, depth

    def followers(self, string: list[int]) -> dict[int, float]:
        """Probability of each next token, the most frequent first, on ties the one that stood there last."""
        size, text = len(string), self.text
        ends = [end for end in range(size, len(text) + 1) if text[end - size : end] == string]
        after = [text[end] for end in ends if end < len(text)] if size < self.depth else []
        last = {token: place for place, token in enumerate(after)}
        order = sorted(last, key=lambda token: (after.count(token), last[token]), reverse=True)
        return {token: after.count(token) / len(ends) for token in order}

    def path(self, string: list[int], room: int, min_prob: float) -> list[tuple[int, float]]:
        drafted: list[tuple[int, float]] = []
        probability = 1.0
        while len(drafted) < room:
            follower = next(iter(self.followers(string + [token for token, _ in drafted]).items()), None)
            probability *= follower[1] if follower else 0.0
            if follower is None or probability < min_prob:
                break
            drafted.append((follower[0], probability))
        return drafted

    def nodes(self, string: list[int], room: int, min_prob: float, probability: float = 1.0) -> Iterator[float]:
        """Probabilities of all continuations of up to `room` tokens."""
        for token, share in self.followers(string).items() if room else ():
            if probability * share >= min_prob:
                yield probability * share
                yield from self.nodes([*string, token], room - 1, min_prob, probability * share)


def limits(options: Any, text: list[int], budget: Budget) -> Iterator[tuple[int, int]]:
    """Match lengths with a match, the longest first, and how many tokens each may draft."""
    for match in range(min(options.depth - 1, len(text)), 0, -1):
        limit = int(match * options.factor + options.offset + 1e-6)
        yield match, max(0, min(options.max_spec, limit, budget.max_nodes))


@settings(max_examples=300)
@given(text=TEXTS, kwargs=OPTIONS, budget=BUDGETS)
def test_path_is_the_best_chain(text: list[int], kwargs: dict[str, Any], budget: Budget) -> None:
    options = suffix.SuffixDecoding(draft="path", **kwargs)
    brute = Brute(text, options.depth)
    best: list[tuple[int, float]] = []
    score, longest = 0.0, 0
    for match, room in limits(options, text, budget):
        length = min(room, budget.max_depth) if budget.max_branches else 0
        chain = brute.path(text[-match:], length, options.min_prob)
        if sum(probability for _, probability in chain) > score:
            best, score, longest = chain, sum(probability for _, probability in chain), match
    found = guess(options, text, budget)
    assert found.tokens == [token for token, _ in best]
    assert found.parents == list(range(-1, len(best) - 1))
    assert (found.score, found.match, found.shared) == (score, longest, False)


@settings(max_examples=200)
@given(text=TEXTS, kwargs=OPTIONS, budget=BUDGETS.filter(lambda budget: budget.max_branches > 9))
def test_tree_holds_the_most_probable_nodes(text: list[int], kwargs: dict[str, Any], budget: Budget) -> None:
    options = suffix.SuffixDecoding(draft="tree", **kwargs)
    brute = Brute(text, options.depth)
    score, longest = 0.0, 0
    for match, room in limits(options, text, budget):
        deepest = min(room, budget.max_depth)
        likely = sorted(brute.nodes(text[-match:], deepest, options.min_prob), reverse=True)[:room]
        if sum(likely) > score:
            score, longest = sum(likely), match
    found = guess(options, text, budget)
    assert (found.score, found.match) == (score, longest)
    assert probabilities(found, brute, text) == score


def probabilities(found: Any, brute: Brute, text: list[int]) -> float:
    """The score of a guess, from its tokens alone."""
    draft = found.draft()
    own: list[float] = []
    for token, parent in zip(found.tokens, found.parents, strict=True):
        string = text[len(text) - found.match :] + draft.tokens[draft.path_to(parent)].tolist()
        own.append((own[parent] if parent >= 0 else 1.0) * brute.followers(string)[token])
    return sum(own)


@pytest.mark.parametrize("kind", ["path", "tree"])
@given(text=TEXTS, kwargs=OPTIONS, budget=BUDGETS)
def test_draft_keeps_its_budget_and_is_a_trie(
    kind: str, text: list[int], kwargs: dict[str, Any], budget: Budget
) -> None:
    found = guess(suffix.SuffixDecoding(draft=kind, **kwargs), text, budget)
    draft = found.draft()
    leaves = set(range(len(draft))) - set(draft.parents.tolist())
    assert len(draft) <= min(budget.max_nodes, kwargs["max_spec"])
    assert draft.depths.max(initial=0) <= min(budget.max_depth, kwargs["depth"] - found.match)
    assert len(leaves) <= (budget.max_branches if kind == "tree" else min(1, budget.max_branches))
    assert len(draft.children) == len(draft)  # no two siblings with the same token
    assert set(found.tokens) <= set(text)
    assert 0 <= found.score <= len(draft)
    assert draft.q is None


@given(text=TEXTS, kwargs=OPTIONS)
def test_a_tree_of_one_branch_is_the_path(text: list[int], kwargs: dict[str, Any]) -> None:
    narrow = Budget(max_branches=1)
    tree = guess(suffix.SuffixDecoding(draft="tree", **kwargs), text, narrow)
    assert tree == guess(suffix.SuffixDecoding(draft="path", **kwargs), text, narrow)


@pytest.mark.parametrize(
    ("options", "tokens", "parents", "match", "score"),
    [
        ({}, [4, 2, 5, 1, 2], [-1, 0, 1, 2, 3], 5, 2.5),  # "1 2 3 1 2" stood before, once; with the end that is 1 / 2
        ({"depth": 4}, [3, 1], [-1, 0], 2, 1.0),  # "1 2" stood four times, before 3, 4, 3 and the end
        ({"depth": 4, "draft": "tree", "offset": 1.0}, [3, 1, 4], [-1, 0, -1], 2, 1.25),
        ({"depth": 4, "min_prob": 0.6}, [], [], 0, 0.0),
        ({"max_spec": 2}, [4, 2], [-1, 0], 5, 1.0),
    ],
    ids=str,
)
def test_worked_examples(
    options: dict[str, Any], tokens: list[int], parents: list[int], match: int, score: float
) -> None:
    found = guess(suffix.SuffixDecoding(**options), [1, 2, 3, 1, 2, 4, 2, 5, 1, 2, 3, 1, 2])
    assert (found.tokens, found.parents, found.match, found.score) == (tokens, parents, match, score)


def test_without_a_match_there_is_no_draft() -> None:
    for text in ([1], [1, 2, 3, 4]):
        found = guess(suffix.SuffixDecoding(), text)
        assert (len(found.draft()), found.score, found.match) == (0, 0.0, 0)
