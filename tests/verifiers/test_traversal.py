"""Traversal verification: block on a chain, rejection on siblings, number by number; any order of nodes will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen

from draftmux.generation import Generation
from draftmux.testing.laws import Trial, check_law
from draftmux.testing.sampled import SampledDrafter, SampledTree
from draftmux.testing.toys import TOYS, equal_toy
from draftmux.tree import ROOT
from draftmux.types import Accepts, Draft
from draftmux.verifiers.block import Block
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

if TYPE_CHECKING:
    from draftmux.testing.sampled import Noise
    from draftmux.types import Budget, Context, Emits

PLAIN = Generation(temperature=1.0)


def test_what_it_declares() -> None:
    assert Traversal.lossless and not Traversal.pathwise
    assert Traversal().accepts == Accepts(tree=True, needs_q=False)


@pytest.mark.parametrize("name", ["random", "a third is 0", "one-hot q"])
def test_a_chain_is_judged_as_block_judges_it(judge: Any, name: str) -> None:
    toy = TOYS[name]
    for draft, _ in Trial.prepare(Block(), SampledTree(toy.q, (1, 1, 1)), toy, PLAIN).drafts():
        for seed in range(20):
            assert judge(Traversal(), toy, draft, seed) == judge(Block(), toy, draft, seed)


@pytest.mark.parametrize("replace", [True, False])
def test_siblings_are_judged_as_rejection_judges_them(judge: Any, replace: bool) -> None:
    toy = TOYS["random, 4 tokens"]
    for draft, _ in Trial.prepare(Rejection(), SampledTree(toy.q, (3,), replace=replace), toy, PLAIN).drafts():
        for seed in range(10):
            assert judge(Traversal(), toy, draft, seed) == judge(Rejection(), toy, draft, seed)


def test_of_a_tree_from_p_itself_the_first_branch_stands(judge: Any) -> None:
    toy = equal_toy(8)
    for draft, _ in Trial.prepare(Traversal(), SampledTree(toy.q, (2, 1)), toy, PLAIN).drafts():
        assert judge(Traversal(), toy, draft).path == (0, 2)


@frozen(eq=False)
class Renumbered(SampledDrafter):
    """The same tree with each branch's nodes in a row; siblings stay in the order in which they were drawn."""

    inner: SampledTree

    @property
    def emits(self) -> Emits:  # type: ignore[override]
        return self.inner.emits

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        draft, order = self.inner.grow(context, budget, noise), list[int]()
        pending = [ROOT]
        while pending:
            node = pending.pop()
            order += [node] if node != ROOT else []
            pending += reversed(draft.siblings.get(node, []))
        place = {ROOT: ROOT, **{node: at for at, node in enumerate(order)}}
        assert draft.q is not None
        return Draft(draft.tokens[order], [place[int(draft.parents[node])] for node in order], draft.q[order])


@pytest.mark.parametrize("verifier", [Rejection(), Traversal()], ids=["rejection", "traversal"])
@pytest.mark.parametrize("replace", [True, False])
def test_the_order_of_branches_changes_neither_law_nor_acceptance(verifier: Any, replace: bool) -> None:
    toy = TOYS["a third is 0"]
    tree = SampledTree(toy.q, (2, 1), replace=replace)
    orders = {tuple(d.parents.tolist()) for d, _ in Trial.prepare(verifier, Renumbered(tree), toy, PLAIN).drafts()}
    assert (ROOT, 0, ROOT, 2) in orders
    check_law(verifier, Renumbered(tree), toy)
    means = [Trial.prepare(verifier, drafter, toy, PLAIN).accepted() for drafter in (tree, Renumbered(tree))]
    assert means[0] == pytest.approx(means[1], abs=1e-12)


def test_without_a_draft_the_token_comes_from_p(judge: Any) -> None:
    toy = TOYS["random"]
    assert {judge(Traversal(), toy, Draft.empty(), seed).token for seed in range(60)} == {0, 1, 2}
