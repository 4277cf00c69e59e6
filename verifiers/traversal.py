"""Traversal verification: a sampled tree is judged from its leaves to its root."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import define, frozen

from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifiers.residual import excess, normalised, ratio
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@define(eq=False)
class _Visited:
    """A node on the way down: its own weight, its untried children in order, and what they left of the law after it.

    `law` is None as long as nobody asked: most leaves are refused without it.
    """

    node: int
    weight: float
    untried: list[int]
    law: Tensor | None = None  # (V,)


@frozen
class Traversal(BaseVerifier):
    """The first leaf, in depth-first order, that passes its test; a refused leaf leaves its parent what it did not
    cover, and a parent without children left is a leaf. On a chain this is block verification.

    Source: "Traversal Verification for Speculative Tree Decoding" (2505.12398), algorithm 2.
    """

    lossless: ClassVar[bool] = True

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """The accepted leaf's path, and a draw from the rest of the law after it."""
        way = [_Visited(ROOT, 1.0, list(draft.siblings.get(ROOT, ())))]
        while True:
            while way[-1].untried and way[-1].weight > 0:  # below a node without weight nothing can stand
                way.append(self._descend(way[-1], draft, sampler))
            leaf = way[-1]
            # The root's weight is 1 from the start to the end, so the loop ends there at the latest.
            if leaf.node == ROOT or sampler.bernoulli(leaf.weight, leaf.node):
                path = tuple(visited.node for visited in way[1:])
                return Acceptance(path, sampler.draw(self._law(leaf, sampler)))
            way.pop()
            self._refuse(leaf.node, way[-1], sampler)

    def _law(self, visited: _Visited, sampler: Sampler) -> Tensor:
        if visited.law is None:
            visited.law = sampler.p(visited.node)
        return visited.law

    def _descend(self, parent: _Visited, draft: Draft, sampler: Sampler) -> _Visited:
        """The next child, weighed by p/q along the way down, capped at 1."""
        node = parent.untried[0]
        token = int(draft.tokens[node])
        weight = parent.weight * ratio(self._law(parent, sampler), sampler.q(node), token)
        return _Visited(node, min(1.0, weight), list(draft.siblings.get(node, ())))

    def _refuse(self, node: int, parent: _Visited, sampler: Sampler) -> None:
        """Take a refused child off its parent: what q did not cover is left."""
        parent.untried.remove(node)
        law = self._law(parent, sampler)
        left = excess(law, sampler.q(node), parent.weight)
        if parent.node != ROOT:
            mass = float(left.sum())
            total = mass + (1 - parent.weight)
            parent.weight = mass / total if total > 0 else 1.0
        parent.law = normalised(left, otherwise=law)
