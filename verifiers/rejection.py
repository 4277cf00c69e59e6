"""Rejection sampling: accept a drafted token with probability p/q, else draw from what q left uncovered of p."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifiers.residual import excess, normalised, ratio
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class Rejection(BaseVerifier):
    """On a chain: speculative sampling. On a tree: siblings are tried in the order in which they were drawn, each
    against what its earlier siblings left of p (recursive rejection sampling, with or without replacement).

    Source: Leviathan et al. (2211.17192), Chen et al. (2302.01318); trees: SpecInfer (2305.09781), Jeon et al.
    (2402.14160).
    """

    lossless: ClassVar[bool] = True

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """Descend as long as some child is accepted; then draw from the rest of the law."""
        path: list[int] = []
        node: int | None = ROOT
        while node is not None:
            node, law = self._child(node, draft, sampler)
            if node is not None:
                path.append(node)
        return Acceptance(tuple(path), sampler.draw(law))

    def _child(self, parent: int, draft: Draft, sampler: Sampler) -> tuple[int | None, Tensor]:
        """The accepted child, or None and what is left of the law after `parent`."""
        law = sampler.p(parent)  # (V,)
        for node in draft.siblings.get(parent, ()):
            q, token = sampler.q(node), int(draft.tokens[node])
            if sampler.bernoulli(ratio(law, q, token), node):
                return node, law
            law = normalised(excess(law, q), otherwise=law)
        return None, law
