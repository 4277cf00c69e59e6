"""Drafts that grow level by level: one pass of the draft model a level, over the frontiers of all sequences.

Chains are trees of width 1. Trees are grown as in EAGLE-2 (2406.16858, section 4): every node of the frontier gets
`top_k` children, the best `top_k` of them by the product of their probabilities are the next frontier, and the best of
all nodes make the draft. Knows nothing of what a draft model reads besides tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from attrs import define, field

from draftmux.backends.masks import Feed
from draftmux.tree import ROOT
from draftmux.types import Budget, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.drafters.neural.laws import Law
    from draftmux.drafters.neural.shape import Shape
    from draftmux.protocols import DraftRequest
    from draftmux.types import Scores, Tap


class DraftModel(Protocol):
    """What growing asks of a draft model. Rows of logits are `(n, V')`, over its own vocabulary."""

    @property
    def carry(self) -> Tap | None:
        """The states that a node hands on to its children, if it does."""

    def catch_up(self, requests: Sequence[DraftRequest]) -> list[Scores]:
        """Read all committed tokens that were not read yet; of each sequence, the row after its root."""
        ...

    def extend(self, requests: Sequence[DraftRequest], feeds: Sequence[Feed]) -> list[Scores]:
        """One pass over drafted nodes; what it writes is scratch."""
        ...

    def start(self, request: DraftRequest) -> int:
        """The slot of the first drafted node."""
        ...


@define(eq=False)
class Sprout:
    """One sequence's draft while it grows. Nodes are numbered as they are made."""

    request: DraftRequest
    law: Law
    shape: Shape
    levels: int
    tokens: list[int] = field(factory=list)
    parents: list[int] = field(factory=list)
    scores: list[float] = field(factory=list)  # log of the product of probabilities on the path
    rows: list[Tensor] = field(factory=list)  # q of every node, if it was sampled
    frontier: list[int] = field(factory=list)  # nodes to pass over next
    fed: list[int] = field(factory=list)  # nodes that were passed over, in the order of their slots
    carried: list[Tensor] = field(factory=list)  # of every level that was passed over: (its nodes, d)

    @classmethod
    def plant(cls, request: DraftRequest, law: Law, shape: Shape, room: int) -> Sprout:
        """A draft that may reach `room` levels at most, as far as the model's context goes."""
        budget = request.budget
        levels = min(shape.depth, shape.max_nodes, budget.max_depth, budget.max_nodes, room)
        return cls(request, law, shape, levels if budget.max_branches else 0)

    def depth(self, node: int) -> int:
        """Levels below the root."""
        return len(self.path(node))

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`; empty for the root."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def branch(self, nodes: Sequence[int], scores: Scores, carry: Tap | None) -> None:
        """Give each of `nodes` its children, by its row of `scores`, and choose the next frontier among them."""
        before = len(self.tokens)
        places: list[int] = []
        children = self.law.children(self, nodes, scores.logits)
        for place, (parent, family) in enumerate(zip(nodes, children, strict=True)):
            for token, logq, row in family:
                self.tokens.append(token)
                self.parents.append(parent)
                self.scores.append(logq + (self.scores[parent] if parent != ROOT else 0.0))
                self.rows += [] if row is None else [row]
                places.append(place)
        made = range(before, len(self.tokens))
        level = self.depth(before) if made else self.levels
        best = sorted(made, key=lambda node: (-self.scores[node], node))[: self.shape.top_k]
        self.frontier = sorted(best) if level < self.levels else []
        if carry is not None and self.frontier:
            chosen = torch.tensor([places[node - before] for node in self.frontier], device=scores.logits.device)
            self.carried.append(scores.taps[carry].index_select(0, chosen))

    def feed(self, start: int) -> Feed:
        """The frontier as a feed whose first level stands at slot `start`; from now on it counts as fed."""
        self.fed += self.frontier
        column = {node: at for at, node in enumerate(self.fed)}
        mask = np.zeros((len(self.fed), len(self.fed)), dtype=np.bool_)
        for row, node in enumerate(self.fed):
            mask[row, [column[other] for other in self.path(node)]] = True
        depths = np.array([self.depth(node) - 1 for node in self.fed], dtype=np.int64)
        tokens = np.array([self.tokens[node] for node in self.fed], dtype=np.int64)
        states = torch.cat(self.carried) if self.carried else None
        return Feed(tokens, depths, mask, start, states=states).last(len(self.frontier))

    def draft(self) -> Draft:
        """The best nodes within the budget; of a sampled chain all, since dropping drawn tokens would bias."""
        if self.rows:
            return Draft.chain(self.tokens, torch.stack(self.rows))
        kept = best_nodes(self.scores, self.parents, self.request.budget.within(Budget(self.shape.max_nodes)))
        place = {node: at for at, node in enumerate(kept)} | {ROOT: ROOT}
        tokens, parents = [self.tokens[node] for node in kept], [place[self.parents[node]] for node in kept]
        return Draft(tokens, parents, confidence=self._confidence(kept) if self.shape.knows_confidence else None)

    def _confidence(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """The draft model's probability of every node after its parent, `(len(nodes),)`."""
        above = [self.scores[self.parents[node]] if self.parents[node] != ROOT else 0.0 for node in nodes]
        found: NDArray[np.float64] = np.exp(np.array([self.scores[node] for node in nodes]) - above)
        return found.clip(0, 1)


def best_nodes(scores: Sequence[float], parents: Sequence[int], budget: Budget) -> list[int]:
    """The best nodes with all their ancestors, within `max_nodes` and `max_branches`, in ascending order.

    A child never scores above its parent, but it may tie, so that a node is taken only if its parent was.
    """
    kept: set[int] = {ROOT}
    leaves: set[int] = set()
    for node in sorted(range(len(scores)), key=lambda node: (-scores[node], node)):
        grown = (leaves - {parents[node]}) | {node}
        if len(kept) <= budget.max_nodes and parents[node] in kept and len(grown) <= budget.max_branches:
            kept.add(node)
            leaves = grown
    return sorted(kept - {ROOT})


def grow(model: DraftModel, sprouts: Sequence[Sprout]) -> list[Draft]:
    """The drafts of all sprouts; those without room stay empty."""
    live = [sprout for sprout in sprouts if sprout.levels > 0]
    if live:
        for sprout, scores in zip(live, model.catch_up([sprout.request for sprout in live]), strict=True):
            sprout.branch([ROOT], scores, model.carry)
    while live := [sprout for sprout in live if sprout.frontier]:
        fed = [sprout.frontier for sprout in live]
        feeds = [sprout.feed(model.start(sprout.request)) for sprout in live]
        found = model.extend([sprout.request for sprout in live], feeds)
        for sprout, nodes, scores in zip(live, fed, found, strict=True):
            sprout.branch(nodes, scores, model.carry)
    return [sprout.draft() for sprout in sprouts]
