"""The router that asks drafters in order until one has a draft, so put cheap ones first."""

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
class Cascade(BaseRouter):
    """The first drafter, in order, whose draft is not empty; the others are not asked."""

    order: list[str] = option("names of the drafters, the first asked first")
    budget: Budget = option("what a draft may hold at most", default=Budget())

    def __attrs_post_init__(self) -> None:
        if not self.order or len(set(self.order)) < len(self.order):
            raise ValueError(f"'order' must name at least one drafter, and each only once: {self.order}")

    def uses(self) -> tuple[str, ...]:
        """All drafters, in order."""
        return tuple(self.order)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """The same every time; the engine goes on to the next drafter when a draft is empty."""
        return Choice(self.order[0], self.budget, otherwise=tuple(self.order[1:]))
