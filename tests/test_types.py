from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from draftmux.arrays import frozen_view
from draftmux.errors import DraftError
from draftmux.types import MIDDLE, TAP_KINDS, UNLIMITED, Acceptance, Budget, Choice, Draft, Step, Tap

sizes = st.integers(0, 8) | st.just(UNLIMITED)
budgets = st.builds(Budget, sizes, sizes, sizes)
candidate_lists = st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=6)

whole = st.integers(-3, 5) | st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
scalars = (
    whole | st.none() | st.booleans() | st.floats() | st.text(max_size=2) | st.binary(max_size=2) | st.complex_numbers()
)
junk = st.recursive(
    scalars | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers(0, 3), inner, max_size=2)
    ),
    max_leaves=6,
)
arrays = st.sampled_from(
    [
        np.zeros((2, 2), dtype=np.int64),
        np.array(3),
        np.array([1.0, 2.0]),
        np.array([True]),
        np.array(["a"]),
        np.array([None]),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([1, 0], dtype=np.int8),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.zeros((0, 4)),
    ]
)
anything = junk | arrays | st.lists(st.integers(-1, 4), max_size=4)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Any tree, siblings that repeat a token included."""
    size = draw(st.integers(0, 10))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    return Draft([draw(st.integers(0, 3)) for _ in range(size)], parents)


def walk(draft: Draft, node: int) -> list[int]:
    return [] if node == -1 else [*walk(draft, int(draft.parents[node])), node]


def paths(draft: Draft) -> list[tuple[int, ...]]:
    return [tuple(int(draft.tokens[above]) for above in walk(draft, node)) for node in range(len(draft))]


@given(candidate_lists, budgets)
def test_candidates_become_a_trie_within_budget(candidates: list[list[int]], budget: Budget) -> None:
    draft = Draft.from_candidates(candidates, budget)
    heads = [
        tuple(candidate[:length])
        for candidate in candidates[: budget.max_branches]
        for length in range(1, min(len(candidate), budget.max_depth) + 1)
    ]
    assert paths(draft) == list(dict.fromkeys(heads))[: budget.max_nodes]
    assert len(draft) <= budget.max_nodes
    assert max(draft.depths, default=0) <= budget.max_depth
    leaves = set(range(len(draft))) - set(draft.parents.tolist())
    assert len(leaves) <= budget.max_branches


@given(candidate_lists)
def test_without_a_budget_every_prefix_is_there_once(candidates: list[list[int]]) -> None:
    found = paths(Draft.from_candidates(candidates))
    assert set(found) == {tuple(c[: n + 1]) for c in candidates for n in range(len(c))}
    assert len(set(found)) == len(found)


@given(drafts())
def test_views_of_the_tree_agree_with_walking_it(draft: Draft) -> None:
    assert draft.path_to(-1) == []
    assert [draft.path_to(node) for node in range(len(draft))] == [walk(draft, node) for node in range(len(draft))]
    assert draft.depths.tolist() == [len(walk(draft, node)) for node in range(len(draft))]
    edges = list(zip(draft.parents.tolist(), draft.tokens.tolist(), strict=True))
    assert draft.children == {edge: edges.index(edge) for edge in edges}


@given(st.lists(st.integers(0, 99), max_size=9))
def test_a_chain_is_one_branch(tokens: list[int]) -> None:
    draft = Draft.chain(tokens)
    assert (draft.tokens.tolist(), draft.parents.tolist()) == (tokens, list(range(-1, len(tokens) - 1)))
    assert paths(draft) == [tuple(tokens[: n + 1]) for n in range(len(tokens))]


def test_an_empty_draft_holds_nothing() -> None:
    for draft in (Draft.empty(), Draft.chain([]), Draft.from_candidates([]), Draft.from_candidates([[], []])):
        assert (len(draft), draft.children, draft.depths.tolist()) == (0, {}, [])
        assert (draft.tokens.dtype, draft.parents.dtype) == (np.int64, np.int64)


@given(drafts().filter(len), st.data())
def test_a_wrong_parent_is_named_with_its_node(draft: Draft, data: st.DataObject) -> None:
    node = data.draw(st.integers(0, len(draft) - 1))
    wrong = data.draw(st.integers(node, node + 9) | st.integers(-9, -2))
    parents = draft.parents.tolist()
    parents[node] = wrong
    with pytest.raises(
        DraftError, match=f"^node {node} has parent {wrong}; a parent must come before its child, or be -1"
    ):
        Draft(draft.tokens, parents)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Draft([1, 2], [-1]), "2 tokens but 1 parents"),
        (lambda: Draft([1], [-1], sources=()), "1 tokens but 0 sources"),
        (lambda: Draft([1], [-1], sources=("a", "b")), "1 tokens but 2 sources"),
        (lambda: Draft([1.0], [-1]), r"flat integer arrays, got shape \(1,\) of float64"),
        (lambda: Draft([[1, 2]], [-1, 0]), r"flat integer arrays, got shape \(1, 2\) of int64"),
        (lambda: Draft(3, [-1]), r"flat integer arrays, got shape \(\)"),
        (lambda: Draft([True], [-1]), "of bool"),
    ],
)
def test_faults_are_told_with_their_numbers(make: Callable[[], Draft], message: str) -> None:
    with pytest.raises(DraftError, match=message):
        make()


def check(make: Callable[[], Draft]) -> Draft | None:
    """The draft if it is one; None after a DraftError, which is the only error that junk may raise."""
    try:
        draft = make()
    except DraftError:
        return None
    size = len(draft)
    assert (draft.tokens.shape, draft.parents.shape) == ((size,), (size,))
    assert (draft.tokens.dtype, draft.parents.dtype) == (np.int64, np.int64)
    assert all(-1 <= parent < node for node, parent in enumerate(draft.parents.tolist()))
    return draft


@given(anything, anything)
@example([1, [2, 3]], [-1, 0])
@example([2**64 - 1], [-1])
@example([1], [2**64 - 1])
def test_junk_arrays_raise_draft_errors_only_and_no_number_changes(tokens: Any, parents: Any) -> None:
    draft = check(lambda: Draft(tokens, parents))
    if draft is not None and len(draft):
        assert draft.tokens.tolist() == np.asarray(tokens).tolist()
        assert draft.parents.tolist() == np.asarray(parents).tolist()


@given(anything)
@example([[1], [2, 3]])
@example(None)
def test_a_junk_chain_raises_draft_errors_only(tokens: Any) -> None:
    check(lambda: Draft.chain(tokens))


@given(anything)
@example(None)
@example([1, 2, 3])
@example([[1.5]])
@example([[None]])
@example([["7"]])
@example([[float("nan")]])
@example([np.array([1.0, 2.0])])
@example([{1: 2}])
def test_junk_candidates_raise_draft_errors_only_and_no_number_changes(candidates: Any) -> None:
    draft = check(lambda: Draft.from_candidates(candidates))
    if draft is not None:
        given_ids = [token for candidate in candidates for token in candidate]
        assert all(isinstance(token, (int, np.integer)) and not isinstance(token, bool) for token in given_ids)
        assert set(draft.tokens.tolist()) == {int(token) for token in given_ids}


def test_a_draft_keeps_no_hold_of_the_buffers_it_was_made_of() -> None:
    tokens, parents = np.array([1, 2]), np.array([-1, 0])
    draft = Draft(tokens, parents)
    tokens[:], parents[:] = 9, 9
    assert (draft.tokens.tolist(), draft.parents.tolist()) == ([1, 2], [-1, 0])


@given(drafts())
def test_a_draft_cannot_be_changed_after_it_was_checked(draft: Draft) -> None:
    for array in (draft.tokens, draft.parents):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint16, np.uint64])
def test_any_integer_type_will_do(kind: type) -> None:
    assert Draft.chain(np.array([1, 2], dtype=kind)).tokens.dtype == np.int64


def test_sources_name_the_guesser_of_each_node() -> None:
    named, unnamed = Draft([1, 2], [-1, 0], sources=("a", "b")), Draft.chain([1, 2])
    assert [named.source(node, "c") for node in range(2)] == ["a", "b"]
    assert [unnamed.source(node, "c") for node in range(2)] == ["c", "c"]


def test_what_travels_cannot_be_reassigned() -> None:
    for thing, name in ((Draft.empty(), "tokens"), (Budget(), "max_nodes"), (Choice("a"), "drafter")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(thing, name, None)


@given(budgets, budgets, budgets)
def test_within_is_the_smaller_of_both(a: Budget, b: Budget, c: Budget) -> None:
    for one, other, both in zip(*(attrs.astuple(x) for x in (a, b, a.within(b))), strict=True):
        assert both == min(one, other)
    assert a.within(b) == b.within(a)
    assert a.within(b).within(c) == a.within(b.within(c))
    assert a.within(a) == a.within(Budget()) == a


@pytest.mark.parametrize("name", ["max_nodes", "max_depth", "max_branches"])
def test_a_budget_is_not_negative(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' must be >= 0: -1"):
        Budget(**{name: -1})


@given(st.integers(-(10**5) + 1, 10**5 - 1), st.sampled_from(TAP_KINDS))
def test_a_tap_reads_what_it_writes(layer: int, kind: Any) -> None:
    assert str(Tap(layer, kind)) == f"{layer}.{kind}"
    assert Tap.parse(str(Tap(layer, kind))) == Tap(layer, kind)
    middle = Tap(MIDDLE + layer, kind)
    assert str(middle) == (f"mid{layer:+}.{kind}" if layer else f"mid.{kind}")
    assert Tap.parse(str(middle)) == middle


@given(st.integers(1, 100), st.data())
def test_a_tap_counts_from_either_end_or_the_middle(layers: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, layers - 1))
    for layer in (index, index - layers, MIDDLE + index - layers // 2):
        assert Tap(layer, "mlp_out").index(layers) == index
    for layer in (layers, -layers - 1, MIDDLE - layers // 2 - 1, MIDDLE + layers):
        with pytest.raises(ValueError, match=f"the target has layers 0 to {layers - 1}"):
            Tap(layer, "mlp_out").index(layers)


@given(st.text(max_size=12) | st.from_regex(r"[-+ ]?\w{0,3}[.]?(attn_out|resid|mlp_out)?\s?", fullmatch=True))
@example("1.attn_out\n")
@example("1.")
@example(".mlp_out")
@example("+1.mlp_out")
@example("1.ATTN_OUT")
@example("\u0663.attn_out")
def test_a_tap_is_ascii_layer_dot_kind_and_nothing_else(text: str) -> None:
    layer, dot, kind = text.partition(".")
    digits = layer.removeprefix("-")
    assume(not layer.startswith("mid"))
    right = bool(dot) and digits.isascii() and digits.isdigit() and kind in TAP_KINDS
    if right:
        assert Tap.parse(text) == Tap(int(layer), kind)  # type: ignore[arg-type]
    else:
        with pytest.raises(
            ValueError, match=r"is not LAYER\.KIND with KIND one of attn_out, resid_mid, mlp_out, resid_post"
        ):
            Tap.parse(text)


def test_a_frozen_view_cannot_be_written_and_follows_its_owner() -> None:
    owner = np.arange(4)
    view = frozen_view(owner)
    for write in (
        lambda: view.__setitem__(0, 9),
        lambda: view[1:].fill(9),
        view.sort,
        lambda: np.add(view, 1, out=view),
    ):
        with pytest.raises(ValueError, match=r"read-only|not writeable"):
            write()
    owner[0] = 7
    assert view.tolist() == [7, 1, 2, 3]


@given(st.none() | st.sampled_from("ab"), st.lists(st.sampled_from("cd"), max_size=2))
def test_a_choice_lists_who_may_be_asked(drafter: str | None, otherwise: Sequence[str]) -> None:
    wanted = () if drafter is None else (drafter, *otherwise)
    assert Choice(drafter, otherwise=tuple(otherwise)).candidates == wanted


def test_the_history_holds_no_tensors() -> None:
    draft = Draft([5], [-1], q="a tensor", sources=("a",))  # type: ignore[arg-type]
    step = Step(Choice("a"), "a", draft, Acceptance((0,), 3), (5, 3), {Tap(0, "mlp_out"): "a tensor"}, {"draft": 0.1})  # type: ignore[dict-item]
    kept = step.without_tensors()
    assert (kept.taps, kept.draft.q) == ({}, None)
    assert (kept.draft.tokens.tolist(), kept.draft.sources) == ([5], ("a",))
    assert (kept.choice, kept.acceptance, kept.committed) == (step.choice, step.acceptance, step.committed)
