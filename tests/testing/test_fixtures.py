"""The fixtures are what they say: otherwise the properties built on them would pass for the wrong reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.engine.guard import Terms, checked_draft
from draftmux.generation import Generation
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Alternating, Corrupt, Oracle, RandomTree, TreeOracle
from draftmux.testing.reference import Ask, expect
from draftmux.testing.routers import RandomRouter
from draftmux.testing.targets import MODELS, hash_law, model_law, random_table, scripted, table_law
from draftmux.testing.texts import byte_tokenizer, cut_up
from draftmux.tree import ROOT
from draftmux.types import Accepts, Budget, Context, Draft, Emits

SIZE = 6
TRUTH = (0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0)


def context(length: int = 1, request_id: str = "request") -> Context:
    return Context(request_id, np.array(TRUTH[:length]), 1, 99, {}, [], Generation())


def walk(draft: Draft, tokens: tuple[int, ...]) -> int:
    """How many of `tokens` are a path of the draft, from the root down."""
    node, depth = ROOT, 0
    for depth, token in enumerate(tokens):
        if (node, token) not in draft.children:
            return depth
        node = draft.children[node, token]
    return depth + 1


@given(budget=some.budgets(), k=some.K, seed=some.SEEDS, data=st.data())
def test_every_drafter_keeps_its_budget(budget: Budget, k: int, seed: int, data: Any) -> None:
    drafters = [
        Oracle([TRUTH], k),
        Corrupt([TRUTH], SIZE, k, at=data.draw(st.integers(0, 7))),
        RandomTree(SIZE, nodes=12, seed=seed),
        TreeOracle([TRUTH], SIZE, k, distractors=12, seed=seed),
    ]
    for drafter in drafters:
        draft = drafter.propose_one(context(), None, budget)
        assert len(checked_draft(draft, Terms(budget, SIZE, drafter.emits, Accepts()))) == len(draft)


@given(draft=some.draft_trees(SIZE))
def test_strategies_draw_trees_that_the_engine_takes(draft: Draft) -> None:
    assert len(checked_draft(draft, Terms(Budget(), SIZE, Emits(tree=True), Accepts()))) == len(draft)


@given(k=some.K, seed=some.SEEDS)
def test_a_tree_oracle_holds_the_truth(k: int, seed: int) -> None:
    draft = TreeOracle([TRUTH], SIZE, k, distractors=10, seed=seed).propose_one(context(), None, Budget())
    assert walk(draft, TRUTH[1:]) >= k
    assert len(draft) > k


def test_the_truth_stands_in_any_row() -> None:
    rows = set()
    for seed in range(40):
        draft = TreeOracle([TRUTH], SIZE, k=2, distractors=6, seed=seed).propose_one(context(), None, Budget())
        first = draft.children[ROOT, 1]
        rows.add((first, draft.children[first, 2]))
    assert len(rows) > 8


@pytest.mark.parametrize("at", range(4))
def test_corrupt_is_right_up_to_one_token(at: int) -> None:
    draft = Corrupt([TRUTH], SIZE, k=4, at=at).propose_one(context(), None, Budget())
    assert [token == right for token, right in zip(draft.tokens, TRUTH[1:5], strict=True)].index(False) == at


def test_an_oracle_is_silent_where_it_knows_nothing() -> None:
    assert not len(Oracle([(5, 5)]).propose_one(context(), None, Budget()))


def test_alternating_drafts_every_second_time() -> None:
    drafter = Alternating(Oracle([TRUTH]))
    state = drafter.begin(context())
    assert [len(drafter.propose_one(context(), state, Budget())) for _ in range(4)] == [4, 0, 4, 0]


def test_random_drafts_and_choices_depend_on_request_and_position_alone() -> None:
    drafter, router = RandomTree(SIZE, nodes=8), RandomRouter()
    places = [context(length, name) for length in range(1, 9) for name in ("a", "b")]

    def all_of(contexts: list[Context]) -> list[Any]:
        drafts = [drafter.propose_one(at, None, Budget()) for at in contexts]
        choices = [router.choose(None, at, {"x": drafter, "y": drafter}) for at in contexts]
        return [(d.tokens.tolist(), d.parents.tolist(), c) for d, c in zip(drafts, choices, strict=True)]

    forward = all_of(places)
    assert forward == all_of(places[::-1])[::-1]
    assert len({str(made) for made in forward}) == len(places)


def test_a_random_router_chooses_everything_there_is() -> None:
    router, drafters = RandomRouter(), dict.fromkeys("xyz", RandomTree(SIZE))
    choices = [router.choose(None, context(1, str(i)), drafters) for i in range(200)]
    assert {choice.drafter for choice in choices} == {None, "x", "y", "z"}
    assert {len(choice.otherwise) for choice in choices} == {0, 1, 2}
    assert {choice.budget.max_depth == 0 for choice in choices} == {True, False}


@pytest.mark.parametrize("name", MODELS)
def test_tiny_models_wander(name: str) -> None:
    target = scripted(model_law(name), 40)
    for prompt in ((1, 2, 3), (7,), (20, 30)):
        assert len(set(expect(Ask(prompt, Generation(max_new_tokens=24)), target, target.law).tokens)) >= 5


def test_laws_depend_on_what_they_say() -> None:
    law, table = hash_law(3, SIZE), table_law(random_table(3, SIZE))
    assert law((1, 2)) == law((1, 2)) != law((2, 2))
    assert table((1, 2)) == table((2,)) != table((1,))
    assert len(set(hash_law(3, 8, levels=2)((1,)))) == 2
    assert hash_law(4, SIZE)((1,)) != law((1,))


def test_a_scripted_target_has_no_position_after_its_last() -> None:
    target = scripted(hash_law(1, SIZE), SIZE, max_length=4)
    target.law((1, 2, 3))
    with pytest.raises(AssertionError, match="position 4 of 4"):
        target.law((1, 2, 3, 4))


def test_texts_are_cut_inside_characters_and_words() -> None:
    text, tokenizer = "the 🙂 cat 你好 naïve café", byte_tokenizer()
    cuts = [cut_up(text, np.random.default_rng(seed)) for seed in range(20)]
    assert all(tokenizer.decode(ids) == text for ids in cuts)
    assert len({len(ids) for ids in cuts}) > 5
    assert any("\ufffd" in tokenizer.decode(ids[:at]) for ids in cuts for at in range(len(ids)))
