"""The router that does not decide: always the same drafter and budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.options import option
from draftmux.routing import BaseRouter
from draftmux.types import Budget, Choice, Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.protocols import Drafter


@frozen
class Fixed(BaseRouter):
    """Always the same drafter; without one, plain decoding."""

    drafter: str | None = option("name of the drafter; without one the target decodes plainly", default=None)
    budget: Budget = option("what a draft may hold at most", default=Budget())

    def uses(self) -> tuple[str, ...]:
        """The drafter, if there is one."""
        return () if self.drafter is None else (self.drafter,)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """The same every time."""
        return Choice(self.drafter, self.budget)
