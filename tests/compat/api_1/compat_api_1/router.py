"""Plugin API 1: a router with options and state. Written once, and never edited again; see the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from draftmux.options import option
from draftmux.routing import BaseRouter
from draftmux.types import Budget, Choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.protocols import Drafter
    from draftmux.types import Context, Step


@define
class Seen:
    """What the router knows of one sequence."""

    prompt: int
    steps: list[str | None] = field(factory=list)


@frozen
class Turns(BaseRouter):
    """Every named drafter in turn; who has no draft is followed by the others."""

    order: list[str] = option("drafters, in turn")
    nodes: int = option("drafted nodes in all", default=6, minimum=1)

    def uses(self) -> tuple[str, ...]:
        return tuple(self.order)

    def begin(self, context: Context) -> Seen:
        assert context.prompt_length == len(context.tokens)
        return Seen(context.prompt_length)

    def choose(self, state: Seen, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        assert len(context.history) == len(state.steps) and set(self.order) <= set(drafters)
        assert context.remaining >= 1 and context.request_id
        turn = len(state.steps) % len(self.order)
        first, *others = self.order[turn:] + self.order[:turn]
        return Choice(first, Budget(max_nodes=self.nodes, max_depth=4, max_branches=3), otherwise=tuple(others))

    def observe(self, state: Seen, step: Step) -> None:
        assert step.choice.drafter in self.order
        state.steps.append(step.drafter)
