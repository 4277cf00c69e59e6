"""An arbiter that keeps drafted tokens by chance: what a learned one must beat at the same rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.options import option
from draftmux.verifiers.cospec.arbitration import Arbiter, Arbitration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import Resources
    from draftmux.verifiers.cospec.walk import Block


@frozen
class RandomArbiter(Arbitration):
    """Keeps each mismatch with probability `rate`, whatever it is; `threshold` plays no part unless it is 0 or above 1.

    Chance is keyed by the request's seed and the position, so a request says the same again.
    """

    rate: float = option("share of mismatches that are kept", minimum=0, maximum=1)

    def judge(self, resources: Resources) -> Arbiter:
        """Nothing to load."""
        return Chance(self.rate)


@frozen(eq=False)
class Chance(Arbiter):
    """1 with probability `rate`, else 0."""

    rate: float

    def scores(self, blocks: Sequence[Block]) -> list[list[float]]:
        """The keys are none that the ratio test asks with."""
        return [
            [float(b.request.sampler.bernoulli(self.rate, size + node)) for node in range(size)]
            for b, size in ((b, len(b.verified)) for b in blocks)
        ]
