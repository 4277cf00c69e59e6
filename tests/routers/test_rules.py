"""The routers that follow a fixed rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import draftmux.routers
from draftmux.generation import Generation
from draftmux.protocols import Resources, Router
from draftmux.registry import Entry
from draftmux.routers.bandit.router import Arm
from draftmux.routers.cascade import Cascade
from draftmux.routers.fixed import Fixed
from draftmux.routers.match_length import MatchLength
from draftmux.routing import BaseRouter
from draftmux.testing.drafters import Empty, Oracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Choice, Context

MakeContext = Callable[[Sequence[int]], Context]
BUDGET = Budget(max_nodes=7, max_depth=3)


def choose(router: Router, context: Context) -> Choice:
    bound = router.bind(Resources())
    return bound.choose(bound.begin(context), context, {})


def test_every_name_loads_a_router() -> None:
    examples: dict[str, dict[str, Any]] = {
        "fixed": {},
        "cascade": {"order": ["a"]},
        "match-length": {"copy": "a"},
        "bandit": {"arms": [Arm(drafter="a"), Arm()]},
        "cost-aware": {"drafters": ["a"]},
    }
    targets: dict[str, str] = {}

    def register(name: str, target: str, help: str = "") -> None:
        targets[name] = target

    draftmux.routers.register_routers(register)
    for name, options in examples.items():
        router = Entry("router", name, targets[name], "", "draftmux", "0", "builtin").load()(**options)
        assert isinstance(router, Router)
        assert isinstance(router.bind(Resources()), Router)


def test_fixed_always_chooses_the_same(make_context: MakeContext) -> None:
    router = Fixed(drafter="copy", budget=BUDGET)
    assert router.uses() == ("copy",)
    assert choose(router, make_context([1])) == choose(router, make_context([1, 1])) == Choice("copy", BUDGET)


def test_fixed_without_a_drafter_decodes_plainly(make_context: MakeContext) -> None:
    assert Fixed().uses() == ()
    assert choose(Fixed(), make_context([1])).candidates == ()


def test_cascade_asks_in_order(make_context: MakeContext) -> None:
    router = Cascade(order=["cheap", "dear", "last"], budget=BUDGET)
    assert router.uses() == ("cheap", "dear", "last")
    choice = choose(router, make_context([1]))
    assert choice.candidates == ("cheap", "dear", "last")
    assert choice.budget == BUDGET


@pytest.mark.parametrize("order", [[], ["a", "a"]])
def test_cascade_refuses_an_empty_or_repeated_order(order: list[str]) -> None:
    with pytest.raises(ValueError, match="'order' must name at least one drafter"):
        Cascade(order=order)


@given(text=st.lists(st.integers(0, 2), min_size=1, max_size=40), size=st.integers(1, 5), start=st.integers(1, 40))
def test_match_length_copies_exactly_after_a_match(
    make_context: MakeContext, text: list[int], size: int, start: int
) -> None:
    router = MatchLength(copy="copy", otherwise="neural", min_match=size).bind(Resources())
    state = router.begin(make_context(text[:start]))  # asked for the first time some steps later
    earlier = [text[end - size + 1 : end + 1] for end in range(size - 1, len(text) - 1)]
    expected = "copy" if text[-size:] in earlier else "neural"
    assert router.choose(state, make_context(text), {}).drafter == expected


def test_match_length_budgets_and_names(make_context: MakeContext) -> None:
    hit, miss = make_context([1, 2, 1]), make_context([1, 2, 3])
    wide = Budget(max_nodes=40)
    both = MatchLength(copy="copy", otherwise="neural", min_match=1, budget=BUDGET, otherwise_budget=wide)
    assert both.uses() == ("copy", "neural")
    assert choose(both, hit) == Choice("copy", BUDGET, ("neural",), otherwise_budget=wide)
    assert choose(both, hit).budget_of("neural") == wide and choose(both, hit).budget_of("copy") == BUDGET
    assert choose(both, miss) == Choice("neural", wide)
    alone = MatchLength(copy="copy", min_match=1, budget=BUDGET)
    assert alone.uses() == ("copy",)
    assert choose(alone, miss) == Choice(None, BUDGET)
    with pytest.raises(ValueError, match="there is none"):
        MatchLength(copy="copy", otherwise_budget=wide)


def test_second_choices_keep_their_own_budget() -> None:
    target = scripted(hash_law(3, 5), 5)
    ask = Ask((1, 2), Generation(max_new_tokens=30, ignore_eos=True), "one")
    truths = Trial.prepare(target, [ask]).truths

    @frozen
    class Chooses(BaseRouter):
        def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
            return Choice("empty", Budget(9), ("oracle",), otherwise_budget=Budget(2))

    metrics = serve(assemble(target, {"empty": Empty(), "oracle": Oracle(truths, 6)}, Chooses()), [ask])["one"]
    assert metrics.finished.metrics.mean_acceptance_length == pytest.approx(3, abs=0.2)
