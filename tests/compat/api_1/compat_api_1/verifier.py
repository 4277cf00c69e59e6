"""Plugin API 1: a verifier without a base class. Written once, and never edited again; see the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts

if TYPE_CHECKING:
    from draftmux.protocols import Resources
    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class Walk:
    """Down from the root, as long as the draft holds what the target picks."""

    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = True
    accepts: ClassVar[Accepts] = Accepts(tree=True, needs_q=False)

    def bind(self, resources: Resources) -> Walk:
        return self

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        assert scores.logits.shape[0] == len(draft) + 1
        path: list[int] = []
        node = ROOT
        while True:
            token = sampler.pick(node)
            below = draft.children.get((node, token))
            if below is None:
                return Acceptance(tuple(path), token)
            path.append(below)
            node = below
