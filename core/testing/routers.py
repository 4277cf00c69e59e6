"""Routers that try everything: which drafter, how much, who is asked next. Seeded, so every trial can be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from draftmux.routing import BaseRouter
from draftmux.testing.drafters import keyed_rng
from draftmux.tree import ROOT
from draftmux.types import AUTO, UNLIMITED, Budget, Choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.protocols import Drafter
    from draftmux.types import Context, Draft, Step

SIZES = (0, 1, 2, 3, 5, 8, AUTO, UNLIMITED)


@frozen
class RandomRouter(BaseRouter):
    """At every step any drafter or none, with any budget and any second choices, any drafters asked beside, and of
    drafts with `trims` any nodes scored; the same for the same seed, request and position."""

    seed: int = 0
    trims: bool = False

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """One draw."""
        rng = keyed_rng(self.seed, context)
        names = [sorted(drafters)[i] for i in rng.permutation(len(drafters))]
        if not names or rng.random() < 0.1:
            return Choice(None)
        budget, other = (Budget(*(SIZES[i] for i in rng.integers(len(SIZES), size=3))) for _ in range(2))
        beside = {name: other for name in names if rng.random() < 0.2}
        others = tuple(names[1 : 1 + int(rng.integers(len(names)))])
        return Choice(names[0], budget, others, beside, otherwise_budget=other if rng.random() < 0.5 else None)

    def trim(self, state: Any, context: Context, name: str, draft: Draft) -> list[int]:
        """Each node with a chance of 4 in 5, if its parent is kept."""
        kept = {ROOT}
        rng = keyed_rng(self.seed + 1, context)
        for node, parent in enumerate(draft.parents.tolist()):
            if parent in kept and (not self.trims or rng.random() < 0.8):
                kept.add(node)
        return sorted(kept - {ROOT})


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
