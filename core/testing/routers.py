"""Routers that try everything: which drafter, how much, who is asked next. Seeded, so every trial can be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from draftmux.routing import BaseRouter
from draftmux.testing.drafters import keyed_rng
from draftmux.types import AUTO, UNLIMITED, Budget, Choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.protocols import Drafter
    from draftmux.types import Context, Step

SIZES = (0, 1, 2, 3, 5, 8, AUTO, UNLIMITED)


@frozen
class RandomRouter(BaseRouter):
    """At every step any drafter or none, with any budget and any second choices; the same for the same seed,
    request and position."""

    seed: int = 0

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """One draw."""
        rng = keyed_rng(self.seed, context)
        names = [sorted(drafters)[i] for i in rng.permutation(len(drafters))]
        if not names or rng.random() < 0.1:
            return Choice(None)
        budget = Budget(*(SIZES[i] for i in rng.integers(len(SIZES), size=3)))
        return Choice(names[0], budget, otherwise=tuple(names[1 : 1 + int(rng.integers(len(names)))]))


@frozen
class ByRequest(BaseRouter):
    """The drafter that a table names for the request's id, and `default` for all others."""

    names: Mapping[str, str]
    default: str | None = None

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Look it up."""
        return Choice(self.names.get(context.request_id, self.default))


@define(eq=False)
class Watching(BaseRouter):
    """Always the first drafter; keeps what a router is shown: every context when asked, every step afterwards."""

    contexts: list[Context] = field(factory=list)
    steps: list[Step] = field(factory=list)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Note the context."""
        self.contexts.append(context)
        return Choice(next(iter(drafters), None))

    def observe(self, state: Any, step: Step) -> None:
        """Note the step."""
        self.steps.append(step)
