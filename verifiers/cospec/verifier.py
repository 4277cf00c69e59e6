"""CoSpec's verifier: a learned arbiter on the draft model decides at each mismatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.options import option
from draftmux.verifiers.cospec.arbitration import Arbiter, Arbitration

if TYPE_CHECKING:
    from draftmux.protocols import Resources


@frozen
class CospecArbiter(Arbitration):
    """An adapter on the draft model reads the context, the draft and what the target has in place of each drafted
    token, and says of every mismatch how likely the draft is right. Refusing all (`threshold` above 1) is lossless.

    Source: CoSpec. Where the paper is silent, layout and head follow public code of its first author.
    """

    threshold: float | None = option(
        "score from which a drafted token is kept against the target; above 1 none is; by default the one that was "
        "best on the problems that training held out",
        default=None,
        minimum=0,
    )
    arbiter: str = option("folder, `package:NAME/PATH` or hub id of what `draftmux train arbiter` has written")
    draft: str = option("name of the drafter `sps` whose model the arbiter adapts; weights are shared")
    revision: str | None = option("of an arbiter on the hub", default=None)

    def judge(self, resources: Resources) -> Arbiter:
        """Load it; ModelError when it does not fit the draft model or the target."""
        from draftmux.verifiers.cospec.learned import load_arbiter

        return load_arbiter(self, resources)
