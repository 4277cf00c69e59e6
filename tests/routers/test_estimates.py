"""Estimates of how far drafts get: against plain counting, and by hand."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.pruning import only, ranks
from draftmux.routers.cost_aware import estimates as module
from draftmux.routers.cost_aware.estimates import BELIEVED, BINS, COMMON, OWN, Estimates, Seen
from draftmux.routers.cost_aware.worth import worth_scoring
from draftmux.testing import strategies as some
from draftmux.types import Budget, Draft

WIDTHS = [1, 2, 4]
CANDIDATES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=5)


@given(candidates=CANDIDATES, width=st.integers(1, 4), depth=st.integers(1, 5))
def test_nodes_below_a_rank_are_the_draft_of_so_many_branches(
    candidates: list[list[int]], width: int, depth: int
) -> None:
    distinct = [c for i, c in enumerate(candidates) if not any(o[: len(c)] == c for o in candidates[:i])]
    distinct = [c for c in distinct if not any(o != c and c == o[: len(c)] for o in distinct)]  # no prefixes
    whole = Draft.from_candidates(distinct)
    narrow = Draft.from_candidates(distinct, Budget(max_branches=width, max_depth=depth))
    kept = only(whole, [n for n in range(len(whole)) if ranks(whole)[n] < width and whole.depths[n] <= depth])
    paths = [{tuple(d.tokens[d.path_to(n)].tolist()) for n in range(len(d))} for d in (kept, narrow)]
    assert paths[0] == paths[1]


@given(draft=some.draft_trees(3), branches=st.sampled_from((1, 2, 4, 9)), depth=st.integers(1, 6), data=st.data())
def test_learning_counts(draft: Draft, branches: int, depth: int, data: Any) -> None:
    node = data.draw(st.integers(-1, len(draft) - 1))
    path = draft.path_to(node)
    found = Estimates(2, WIDTHS, 6)
    found.learn(1, Seen.of(draft, path, branches, depth, found))
    rank = ranks(draft)
    for place, width in enumerate(WIDTHS):
        for level in range(1, 7):
            length = sum(rank[n] < width for n in path)
            seen = width <= branches
            assert found.reached[1, place, level - 1] == (seen and level <= length + 1 and level <= depth)
            assert found.accepted[1, place, level - 1] == (seen and level <= length and level <= depth)
            nodes = sum(rank[n] < width and draft.depths[n] <= level for n in range(len(draft)))
            known = seen and (level <= depth or draft.depths.max(initial=0) < depth)
            assert found.drafts[1, place, level - 1] == known
            assert found.nodes[1, place, level - 1] == (nodes if known else 0)
    assert not found.reached[0].any() and not found.drafts[0].any()


def test_beliefs_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP", 1.0)
    found = Estimates(2, [1], 2)
    assert found.survival(0).tolist() == [[BELIEVED, pytest.approx(BELIEVED**2)]]
    for accepted in (2, 2, 1, 0):
        found.learn(0, Seen.of(Draft.chain([1, 1]), list(range(accepted)), 1, 2, found))
    common = ((3 + COMMON * BELIEVED) / (4 + COMMON), (2 + COMMON * BELIEVED) / (3 + COMMON))
    own = [(3 + OWN * common[0]) / (4 + OWN), (2 + OWN * common[1]) / (3 + OWN)]
    assert found.survival(0)[0].tolist() == pytest.approx([own[0], own[0] * own[1]])
    assert found.survival(1)[0].tolist() == pytest.approx([common[0], common[0] * common[1]])
    assert found.sizes(0)[0].tolist() == pytest.approx([1.0, 2.0])


@given(seed=some.SEEDS)
def test_chances_fall_along_a_path_and_stay_chances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = Estimates(2, WIDTHS, 4)
    for _ in range(30):
        tree = Draft.from_candidates(rng.integers(0, 3, (3, 4)).tolist())
        node = int(rng.integers(-1, len(tree)))
        seen = Seen.of(tree, tree.path_to(node), int(rng.integers(1, 5)), int(rng.integers(1, 5)), found)
        found.learn(int(rng.integers(2)), seen)
    for kind in range(2):
        survival = found.survival(kind)
        assert ((survival > 0) & (survival < 1)).all() and (np.diff(survival, axis=1) <= 0).all()
        assert (np.diff(found.sizes(kind), axis=1) >= 0).all()


def test_another_s_drafts_count_for_so_many_at_most() -> None:
    seen, fresh = Estimates(1, [1], 2), Estimates(1, [1], 2)
    for _ in range(40):
        seen.learn(0, Seen.of(Draft.chain([1, 1]), [0], 1, 2, seen))
    fresh.start_from(seen, 5.0)
    assert fresh.drafts[0, 0].tolist() == pytest.approx([5.0, 5.0])
    assert (fresh.accepted / fresh.reached)[0, 0].tolist() == pytest.approx([1.0, 0.0])
    fresh.learn(0, Seen.of(Draft.chain([1, 1]), [], 1, 2, fresh))
    assert seen.drafts.min() > 30 and fresh.drafts.max() < 6.01


@given(candidates=CANDIDATES, seed=some.SEEDS, most=st.integers(0, 9))
def test_the_best_nodes_are_those_of_all_trees(candidates: list[list[int]], seed: int, most: int) -> None:
    """Against every set of nodes that holds the parents of each; more rows may cost less."""
    rng = np.random.default_rng(seed)
    tree = Draft.from_candidates(candidates, Budget(8))
    chances = rng.random(len(tree))
    for node, parent in enumerate(tree.parents.tolist()):
        chances[node] *= chances[parent] if parent >= 0 else 1
    prices = rng.random(most + 1) * 2
    cheapest = [min(prices[size:]) for size in range(most + 1)]
    subsets = chain.from_iterable(combinations(range(len(tree)), size) for size in range(min(len(tree), most) + 1))
    whole = [nodes for nodes in subsets if all(int(tree.parents[node]) in (-1, *nodes) for node in nodes)]
    best = max(sum(chances[node] for node in nodes) - cheapest[len(nodes)] for nodes in whole)
    found = worth_scoring(chances, prices)
    assert tuple(found) in whole
    assert chances[found].sum() - cheapest[len(found)] == pytest.approx(best)


def test_confidence_is_worth_what_it_has_been() -> None:
    """One that is always right at 0.55 and never at 0.85; unknown confidence is taken at its word."""
    found = Estimates(1, [1], 2)
    for _ in range(200):
        found.learn(0, Seen.of(Draft([1, 2], [-1, -1], confidence=[0.55, 0.85]), [0], 1, 2, found))
    tree = Draft([1, 2, 3], [-1, -1, 0], confidence=[0.55, 0.85, 0.31])
    chances = found.chances(tree)
    assert chances[0] > 0.95 and chances[1] < 0.05 and chances[2] == pytest.approx(0.31 * chances[0])
    assert found.tried.sum() > 150 and len(found.tried) == BINS


def test_drafts_asked_one_level_deep_say_nothing_of_deeper_ones() -> None:
    found = Estimates(1, [1], 6)
    for _ in range(200):
        found.learn(0, Seen.of(Draft.chain([1]), [0], 1, 1, found))
    assert found.sizes(0)[0].tolist() == pytest.approx([1, 2, 3, 4, 5, 6])
    for _ in range(200):  # asked for six, it never had more than two
        found.learn(0, Seen.of(Draft.chain([1, 1]), [0], 1, 6, found))
    assert found.sizes(0)[0, 1:].tolist() == pytest.approx([2] * 5, abs=0.1)
