"""Block verification: the whole chain is judged at once, so a token may stand although its own ratio was unlucky."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts
from draftmux.verifiers.residual import excess, normalised, ratio
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class Block(BaseVerifier):
    """The longest prefix of a chain that passes its test; never shorter on average than token by token.

    Source: Sun et al., "Block Verification Accelerates Speculative Decoding" (2403.10444), algorithm 2.
    """

    lossless: ClassVar[bool] = True
    accepts: ClassVar[Accepts] = Accepts(tree=False)

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """Node i is the (i+1)-th token of the chain, and the law after it is that of node i."""
        weights = self._weights(draft, sampler)
        for node in reversed(range(len(draft))):
            if sampler.bernoulli(self._chance(node, weights[node], draft, sampler), node):
                break
        else:
            node = ROOT
        law, weight = sampler.p(node), weights[node] if node != ROOT else 1.0
        if node + 1 < len(draft):
            law = normalised(excess(law, sampler.q(node + 1), weight), otherwise=law)
        return Acceptance(tuple(range(node + 1)), sampler.draw(law))

    def _weights(self, draft: Draft, sampler: Sampler) -> list[float]:
        """Per node, the running ratio of p to q along the chain, capped at 1 after every token."""
        weights, weight = [], 1.0
        for node, token in enumerate(draft.tokens.tolist()):
            if weight > 0:  # behind a token that p rules out nothing can stand
                weight = min(1.0, weight * ratio(sampler.p(node - 1), sampler.q(node), token))
            weights.append(weight)
        return weights

    def _chance(self, node: int, weight: float, draft: Draft, sampler: Sampler) -> float:
        """The probability with which the chain up to `node` stands, given that no longer one does."""
        if node + 1 == len(draft) or not weight:
            return weight
        left = float(excess(sampler.p(node), sampler.q(node + 1), weight).sum())
        total = left + (1 - weight)
        return left / total if total > 0 else 1.0
