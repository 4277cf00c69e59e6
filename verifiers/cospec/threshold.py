"""An arbiter without learning: how likely the target finds the drafted token, against its favourite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.verifiers.cospec.arbitration import Arbiter, Arbitration
from draftmux.verifiers.lossy.judging import open_law

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import Resources
    from draftmux.verifiers.cospec.walk import Block


@frozen
class ThresholdArbiter(Arbitration):
    """A drafted token x is kept where p(x) >= threshold · max p; p at the request's temperature, at 1 when greedy.

    With `threshold: 0` it keeps all that is not banned.
    """

    def judge(self, resources: Resources) -> Arbiter:
        """Nothing to load."""
        return Likelihood()


@frozen(eq=False)
class Likelihood(Arbiter):
    """p(x) / max p."""

    def scores(self, blocks: Sequence[Block]) -> list[list[float]]:
        """Laws are looked at where the two tokens differ."""
        found = []
        for block in blocks:
            row = [0.0] * len(block.verified)
            for node in block.mismatches:
                law = open_law(node - 1, block.request.sampler)
                row[node] = float(law[block.drafted[node]] / law.max())
            found.append(row)
        return found
