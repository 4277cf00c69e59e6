"""Merge: tries under one budget, and drafters asked once a batch with their own states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from draftmux.drafters.merge import Merge, merge_drafts
from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.errors import PluginError
from draftmux.protocols import Drafter, DraftRequest, Resources
from draftmux.types import Acceptance, Budget, Choice, Context, Draft, Emits, Needs, Step

MakeContext = Callable[[Sequence[int]], Context]

CANDIDATES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=4)
DRAFTS = st.lists(st.builds(Draft.from_candidates, CANDIDATES), min_size=2, max_size=4)
SMALL = st.integers(0, 10)
BUDGETS = st.builds(Budget, SMALL, SMALL, SMALL)


def paths(draft: Draft) -> list[tuple[int, ...]]:
    return [tuple(draft.tokens[draft.path_to(node)].tolist()) for node in range(len(draft))]


def names_of(drafts: Sequence[Draft]) -> list[str]:
    return [f"drafter {rank}" for rank in range(len(drafts))]


@given(drafts=DRAFTS)
def test_without_a_limit_the_merge_is_the_union(drafts: list[Draft]) -> None:
    merged = merge_drafts(names_of(drafts), drafts, Budget())
    assert set(paths(merged)) == {path for draft in drafts for path in paths(draft)}


@given(drafts=DRAFTS, budget=BUDGETS)
def test_merge_is_a_trie_within_budget_and_sources_are_right(drafts: list[Draft], budget: Budget) -> None:
    names = names_of(drafts)
    merged = merge_drafts(names, drafts, budget)
    guessed = [set(paths(draft)) for draft in drafts]
    assert len(set(paths(merged))) == len(merged)  # no equal siblings
    for path, source in zip(paths(merged), merged.sources or (), strict=True):
        assert source == next(name for name, own in zip(names, guessed, strict=True) if path in own)
    leaves = set(range(len(merged))) - set(merged.parents.tolist())
    assert len(merged) <= budget.max_nodes
    assert merged.depths.max(initial=0) <= budget.max_depth
    assert len(leaves) <= budget.max_branches


@given(drafts=DRAFTS, nodes=st.integers(4, 10))
def test_everybody_s_first_guess_is_in(drafts: list[Draft], nodes: int) -> None:
    merged = merge_drafts(names_of(drafts), drafts, Budget(max_nodes=nodes))
    assert {int(draft.tokens[0]) for draft in drafts if len(draft)} <= {path[0] for path in paths(merged)}


@given(drafts=DRAFTS, nodes=SMALL)
def test_no_node_of_the_budget_is_wasted(drafts: list[Draft], nodes: int) -> None:
    union = {path for draft in drafts for path in paths(draft)}
    assert len(merge_drafts(names_of(drafts), drafts, Budget(max_nodes=nodes))) == min(nodes, len(union))


def test_a_short_budget_is_shared_equally_and_leftovers_go_on() -> None:
    long, other, short = Draft.chain([1, 2, 3, 4, 5, 6]), Draft.chain([7, 8, 9, 10]), Draft.chain([7])
    even = merge_drafts(["a", "b"], [long, other], Budget(max_nodes=6))
    assert even.tokens.tolist() == [1, 7, 2, 8, 3, 9]
    assert even.parents.tolist() == [-1, -1, 0, 1, 2, 3]
    assert even.sources == ("a", "b", "a", "b", "a", "b")
    rest = merge_drafts(["a", "b"], [long, short], Budget(max_nodes=6))
    assert rest.tokens.tolist() == [1, 7, 2, 3, 4, 5]


def test_a_shared_node_costs_no_turn() -> None:
    merged = merge_drafts(["a", "b"], [Draft.chain([1, 2, 3]), Draft.chain([1, 2, 4])], Budget(max_nodes=4))
    assert merged.tokens.tolist() == [1, 2, 3, 4]
    assert merged.parents.tolist() == [-1, 0, 1, 1]
    assert merged.sources == ("a", "a", "a", "b")
    merged = merge_drafts(["a", "b"], [Draft.chain([1, 2, 3]), Draft.chain([1, 9])], Budget(max_nodes=2))
    assert paths(merged) == [(1,), (1, 9)]


def test_the_last_branch_may_still_grow() -> None:
    merged = merge_drafts(["a", "b"], [Draft.chain([1, 2, 3]), Draft.chain([7, 8])], Budget(max_branches=1))
    assert merged.tokens.tolist() == [1, 2, 3]


@define
class Recorder:
    """Gives every request the same draft, and writes down how it was called."""

    tokens: list[int]
    calls: list[Any] = field(factory=list)
    needs: ClassVar[Needs] = Needs()
    emits: ClassVar[Emits] = Emits()

    def uses(self) -> tuple[str, ...]:
        return ()

    def bind(self, resources: Resources) -> Drafter:
        return self

    def begin(self, context: Context) -> Any:
        return f"state of {self.tokens} for {context.tokens.tolist()}"

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.calls.append([request.state for request in requests])
        return [Draft.chain(self.tokens[: request.budget.max_nodes]) for request in requests]

    def observe(self, state: Any, step: Step) -> None:
        self.calls.append((state, step))


def test_each_drafter_is_asked_once_for_the_batch_with_its_own_states(make_context: MakeContext) -> None:
    first, second = Recorder([1, 2, 3]), Recorder([4, 5, 6])
    merged = Merge(of=["one", "two"], max_nodes=4).bind(Resources(drafters={"one": first, "two": second}))
    contexts = [make_context([10]), make_context([11, 12])]
    states = [merged.begin(context) for context in contexts]
    budgets = [Budget(), Budget(max_nodes=3)]
    requests = [DraftRequest(*parts) for parts in zip(contexts, states, budgets, strict=True)]
    drafts = merged.propose(requests)
    assert [draft.tokens.tolist() for draft in drafts] == [[1, 4, 2, 5], [1, 4, 2]]
    assert first.calls == [["state of [1, 2, 3] for [10]", "state of [1, 2, 3] for [11, 12]"]]
    assert second.calls == [["state of [4, 5, 6] for [10]", "state of [4, 5, 6] for [11, 12]"]]
    assert merged.emits == Emits(tree=True)
    assert merged.uses() == ("one", "two")


def test_everybody_observes_with_its_own_state(make_context: MakeContext) -> None:
    first, second = Recorder([1]), Recorder([2])
    merged = Merge(of=["one", "two"]).bind(Resources(drafters={"one": first, "two": second}))
    state = merged.begin(make_context([10]))
    step = Step(Choice("m"), "m", Draft.empty(), Acceptance((), 3), (3,), {}, {})
    merged.observe(state, step)
    assert first.calls == [("state of [1] for [10]", step)]
    assert second.calls == [("state of [2] for [10]", step)]


def test_real_drafters_merge_into_a_tree(make_context: MakeContext) -> None:
    parts = {"long": PromptLookup(length=3), "wide": ContextCopy(min_match=1, max_depth=1)}
    merged = Merge(of=["long", "wide"]).bind(Resources(drafters=parts))
    context = make_context([1, 5, 2, 1, 3, 4, 2, 1])
    draft = merged.propose([DraftRequest(context, merged.begin(context), Budget())])[0]
    assert set(paths(draft)) == {(3,), (3, 4), (3, 4, 2), (5,)}
    assert dict(zip(paths(draft), draft.sources or (), strict=True))[(5,)] == "wide"


class Broken(Recorder):
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        raise ZeroDivisionError("inner fault")


class Forgetful(Recorder):
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return []


@pytest.mark.parametrize(
    ("inner", "fault", "message"),
    [
        (Broken([1]), PluginError, "its drafter 'two' failed: ZeroDivisionError: inner fault"),
        (Forgetful([1]), PluginError, "drafter 'two' answered 1 requests with 0 drafts"),
    ],
)
def test_faults_of_an_inner_drafter_come_through(
    make_context: MakeContext, inner: Recorder, fault: type[Exception], message: str
) -> None:
    merged = Merge(of=["one", "two"]).bind(Resources(drafters={"one": Recorder([1]), "two": inner}))
    context = make_context([10])
    with pytest.raises(fault, match=message):
        merged.propose([DraftRequest(context, merged.begin(context), Budget())])


@pytest.mark.parametrize("of", [[], ["one"], ["one", "one"]])
def test_merge_needs_two_different_drafters(of: list[str]) -> None:
    with pytest.raises(ValueError, match="at least two different"):
        Merge(of=of)


def test_unknown_and_unbound_drafters_are_named(make_context: MakeContext) -> None:
    merge = Merge(of=["one", "twoo"])
    assert merge.uses() == ("one", "twoo")
    with pytest.raises(PluginError, match="unknown drafter 'twoo'; did you mean 'two'"):
        merge.bind(Resources(drafters={"one": Recorder([1]), "two": Recorder([2])}))
    with pytest.raises(PluginError, match="call `bind`"):
        merge.propose([DraftRequest(make_context([1]), None, Budget())])
