"""The router that copies exactly when the last tokens have occurred before: the strongest rule without a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.drafters.ngram import LONGEST
from draftmux.drafters.ngram.index import NgramIndex
from draftmux.options import option
from draftmux.routers.gate import CopyGate, Gate

if TYPE_CHECKING:
    from draftmux.protocols import Resources
    from draftmux.types import Context


@frozen
class Matches(Gate):
    """Open where the last `min_match` tokens occurred before."""

    min_match: int

    def watch(self, context: Context) -> NgramIndex:
        """An index of the sequence; it catches up whenever it is asked."""
        return NgramIndex([self.min_match], context.tokens)

    def opens(self, state: NgramIndex, context: Context) -> bool:
        """After a match."""
        state.catch_up(context.tokens)
        return next(state.matches(self.min_match), None) is not None


@frozen
class MatchLength(CopyGate):
    """The copying drafter when the last `min_match` tokens occurred before, else the other one, or what another router
    chooses.

    Another drafter is also asked when the copying one has no draft after all.
    """

    min_match: int = option("tokens that must have occurred before", default=5, minimum=1, maximum=LONGEST)

    def gate(self, resources: Resources) -> Gate:
        """Needs nothing."""
        return Matches(self.min_match)
