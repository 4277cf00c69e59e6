"""Exact match: follow the draft wherever it is what the target itself picks. Lossless for any draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class ExactMatch(BaseVerifier):
    """Walk down from the root; at each node take the target's own pick (greedy, or the position-keyed draw).

    Source: greedy verification; sampled, drafter-invariant decoding by Gumbel coupling (Daliri, Musco, Suresh, 2024).
    """

    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = True

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """The longest path of the draft that equals the target's picks, and the pick after it."""
        path: list[int] = []
        node = ROOT
        while True:
            token = sampler.pick(node)
            child = draft.children.get((node, token))
            if child is None:
                return Acceptance(tuple(path), token)
            path.append(child)
            node = child
