"""Growing drafts: trees and chains are those of a brute force, and every pass says what its nodes may see."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.drafters.neural.growth import best_nodes, grow
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.neural.shape import Shape
from draftmux.generation import Generation
from draftmux.testing import strategies as some
from draftmux.testing.targets import hash_law
from draftmux.tree import ROOT
from draftmux.types import Budget, Draft

SIZE = 6
SHAPES = st.builds(
    Shape,
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 14),
    st.sampled_from((0.0, 0.0, 0.3, 0.6)),
    st.sampled_from(("coupled", "greedy")),
)
CHAIN = Shape(4, 1, 32, 0.0, "coupled")
TREE = Shape(3, 3, 32, 0.0, "coupled")


def levels(shape: Shape, budget: Budget, room: int) -> int:
    depth = min(shape.depth, budget.max_depth, room, shape.max_nodes, budget.max_nodes)
    return max(depth, 0) if budget.max_branches else 0


@settings(max_examples=120)
@given(seed=some.SEEDS, shape=SHAPES, budget=some.budgets(), room=st.sampled_from((99, 99, 2, 1, 0, -3)))
def test_a_draft_is_the_one_that_brute_force_finds(
    book: Any, seed: int, shape: Shape, budget: Budget, room: int
) -> None:
    law, committed = hash_law(seed, SIZE), (1, 2)
    model = book.Model(law)
    [draft] = grow(model, [book.sprout(committed, SIZE, shape, budget=budget, room=room)])
    pool = book.Pool(book.log_law(law), committed, shape)
    pool.grow(levels(shape, budget, room))
    assert book.paths(draft) == pool.kept(budget)
    assert draft.q is None and len(draft.children) == len(draft), "siblings must differ"
    assert (draft.confidence is None) == (shape.top_k == 1 and not shape.min_confidence)
    for node, sure in enumerate(() if draft.confidence is None else draft.confidence.tolist()):
        before = (*committed, *draft.tokens[draft.path_to(node)].tolist()[:-1])
        assert sure == pytest.approx(math.exp(book.log_law(law)(before)[int(draft.tokens[node])]), abs=1e-6)
    assert model.passes <= max(levels(shape, budget, room) - 1, 0), "no pass may be in vain"


@settings(max_examples=40)
@given(seed=some.SEEDS, shape=SHAPES, budget=some.budgets(), tied=st.integers(1, 3))
def test_with_ties_a_draft_is_still_a_tree_within_its_budget(
    book: Any, seed: int, shape: Shape, budget: Budget, tied: int
) -> None:
    [draft] = grow(book.Model(hash_law(seed, SIZE, tied)), [book.sprout((3,), SIZE, shape, budget=budget)])
    leaves = set(range(len(draft))) - set(draft.parents.tolist())
    assert len(draft) <= min(budget.max_nodes, shape.max_nodes) and len(leaves) <= budget.max_branches
    assert max(draft.depths.tolist(), default=0) <= min(budget.max_depth, shape.depth)
    assert len(draft.children) == len(draft)


def test_a_sure_law_gives_a_chain_whose_scores_tie(book: Any) -> None:
    """log q = 0 all the way down: a child may come before its parent by score, and must not be kept without it."""
    sure = [-1e9] * SIZE
    sure[4] = 0.0
    [draft] = grow(book.Model(lambda prefix: sure), [book.sprout((1,), SIZE, TREE, budget=Budget(max_nodes=2))])
    assert (draft.tokens.tolist(), draft.parents.tolist()) == ([4, 4], [-1, 0])


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Scores that never rise down a path, with many ties, and parents that come before their children."""
    parents = [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(0, 10)))]
    scores: list[float] = []
    for parent in parents:
        scores.append((scores[parent] if parent != ROOT else 0.0) - draw(st.sampled_from((0, 0, 1, 2))))
    return scores, parents


@settings(max_examples=200)
@given(forest=forests(), budget=some.budgets(8))
def test_the_best_nodes_are_kept(forest: tuple[list[float], list[int]], budget: Budget) -> None:
    scores, parents = forest
    kept = best_nodes(scores, parents, budget)
    leaves = set(kept) - {parents[node] for node in kept}
    assert kept == sorted(set(kept)) and all(parents[node] in {ROOT, *kept} for node in kept)
    assert len(kept) <= budget.max_nodes and len(leaves) <= budget.max_branches
    for other in set(range(len(parents))) - set(kept):  # nothing that would have fitted was left out
        more = {*kept, other}
        fits = len(more) <= budget.max_nodes and len(more - {parents[n] for n in more}) <= budget.max_branches
        assert not fits or parents[other] not in {ROOT, *kept}
    if budget.max_branches >= len(parents):
        best = sorted(range(len(scores)), key=lambda node: (-scores[node], node))[: budget.max_nodes]
        assert kept == sorted(best)


@settings(max_examples=30)
@given(seed=some.SEEDS, shapes=st.lists(SHAPES, min_size=2, max_size=4), data=st.data())
def test_a_batch_drafts_what_each_drafts_alone(book: Any, seed: int, shapes: list[Shape], data: Any) -> None:
    law, shared = hash_law(seed, SIZE), data.draw(st.lists(some.budgets(), min_size=4, max_size=4))

    def sprouts() -> list[Any]:
        return [
            book.sprout([1] * (at + 1), SIZE, shape, budget=shared[at], name=str(at)) for at, shape in enumerate(shapes)
        ]

    together = grow(book.Model(law), sprouts())
    alone = [grow(book.Model(law), [one])[0] for one in sprouts()]
    assert list(map(book.paths, together)) == list(map(book.paths, alone))


@pytest.mark.parametrize("budget", [Budget(max_nodes=0), Budget(max_depth=0), Budget(max_branches=0)])
@pytest.mark.parametrize("shape", [CHAIN, TREE, Shape(4, 1, 9, 0.0, "sampled")])
def test_without_room_the_model_is_not_asked(book: Any, shape: Shape, budget: Budget) -> None:
    """Another sequence of the batch drafts all the same."""
    model = book.Model(hash_law(3, SIZE))
    generation = Generation(temperature=1.0)
    none, some_ = (
        book.sprout((1,), SIZE, shape, generation=generation, budget=limit, name=name)
        for limit, name in ((budget, "none"), (Budget(max_nodes=3), "some"))
    )
    drafts = grow(model, [none, some_])
    assert len(drafts[0]) == 0 and len(drafts[1]) == 3 and set(model.slots) == {"some"}
    assert not grow(book.Model(hash_law(3, SIZE)), [])


@pytest.mark.parametrize("draw", ["coupled", "greedy", "sampled"])
def test_a_chain_stops_before_an_unsure_law(book: Any, draw: Any) -> None:
    """Whatever is drawn from a law is submitted; what decides is the law alone."""
    flat, sharp = [0.0] * SIZE, [9.0, *[0.0] * (SIZE - 1)]
    model = book.Model(lambda prefix: flat if len(prefix) == 4 else sharp)
    for temperature in (0.0, 1.0):
        generation = Generation(temperature=temperature, seed=5)
        [draft] = grow(model, [book.sprout((1, 2), SIZE, Shape(5, 1, 9, 0.5, draw), generation=generation)])
        assert len(draft) == 2 and (draft.q is not None) == (draw == "sampled")


def test_the_threshold_is_of_the_processed_law(book: Any) -> None:
    model = book.Model(lambda prefix: [2.0, 1.0, 0.0])
    shape = Shape(2, 1, 9, 0.8, "greedy")
    for temperature, length in ((1.0, 0), (0.5, 2)):
        generation = Generation(temperature=temperature)
        assert len(grow(model, [book.sprout((1,), 3, shape, generation=generation)])[0]) == length


@pytest.mark.parametrize("shape", [CHAIN, TREE, Shape(4, 1, 32, 0.2, "coupled")])
@pytest.mark.parametrize("generation", [Generation(), Generation(temperature=0.8, repetition_penalty=1.2, seed=3)])
@pytest.mark.parametrize("ids", [(5, 0, 3), (0, 1, 2, 3, 4, 5), None])
def test_a_draft_vocabulary_is_the_law_without_the_other_tokens(
    book: Any, shape: Shape, generation: Generation, ids: tuple[int, ...] | None
) -> None:
    """`ids` None: the draft model knows the first four ids only."""
    law, known = hash_law(8, SIZE), ids or (0, 1, 2, 3)
    places = None if ids is None else torch.tensor(ids)

    def run(row: Any, vocabulary: Vocabulary) -> Draft:
        return grow(book.Model(row), [book.sprout((2, 5), SIZE, shape, generation=generation, vocabulary=vocabulary)])[
            0
        ]

    narrow = run(lambda prefix: [law(prefix)[token] for token in known], Vocabulary(SIZE, places))
    wide = run(lambda prefix: [v if t in known else -math.inf for t, v in enumerate(law(prefix))], Vocabulary(SIZE))
    assert book.paths(narrow) == book.paths(wide) and len(narrow) >= 1
    assert set(narrow.tokens.tolist()) <= set(known)


@pytest.mark.parametrize("draw", ["coupled", "greedy", "sampled"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_of_a_larger_embedding_is_cut(book: Any, draw: Any, temperature: float) -> None:
    law, shape = hash_law(9, SIZE), Shape(4, 1, 32, 0.0, draw)
    drafts = []
    for padding in ([], [99.0, 98.0]):
        model = book.Model(lambda prefix, padding=padding: [*law(prefix), *padding])
        drafts += grow(model, [book.sprout((1,), SIZE, shape, generation=Generation(temperature=temperature))])
    assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()
    assert draw != "sampled" or torch.equal(drafts[0].q, drafts[1].q)  # type: ignore[arg-type]


def test_a_tree_needs_no_more_children_than_there_are_tokens(book: Any) -> None:
    [draft] = grow(book.Model(hash_law(1, 3)), [book.sprout((1,), 3, Shape(2, 8, 64, 0.0, "coupled"))])
    assert len(draft) == 3 + 9
