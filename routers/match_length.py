"""The router that copies exactly when the last tokens have occurred before: the strongest rule without a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.drafters.ngram.index import NgramIndex
from draftmux.options import option
from draftmux.routing import BaseRouter
from draftmux.types import Budget, Choice, Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.protocols import Drafter


@frozen
class MatchLength(BaseRouter):
    """The copying drafter when the last `min_match` tokens occurred before, else the other one.

    The other one is also asked when the copying drafter has no draft after all.
    """

    copy: str = option("name of the drafter that copies")
    otherwise: str | None = option("name of the drafter for all other steps; without one they are plain", default=None)
    min_match: int = option("tokens that must have occurred before", default=5, minimum=1)
    budget: Budget = option("what a draft may hold at most", default=Budget())
    otherwise_budget: Budget | None = option("the same for `otherwise`; by default `budget`", default=None)

    def uses(self) -> tuple[str, ...]:
        """One drafter or two."""
        return (self.copy,) if self.otherwise is None else (self.copy, self.otherwise)

    def begin(self, context: Context) -> NgramIndex:
        """The router's own index of the sequence; it catches up whenever it is asked."""
        return NgramIndex([self.min_match], context.tokens)

    def choose(self, state: NgramIndex, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Copy after a match."""
        state.catch_up(context.tokens)
        if next(state.matches(self.min_match), None) is not None:
            return Choice(self.copy, self.budget, () if self.otherwise is None else (self.otherwise,))
        return Choice(self.otherwise, self.otherwise_budget or self.budget)
