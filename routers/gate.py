"""What routers have in common that open or shut the way to a copying drafter, and leave other steps to another one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

from attrs import define, evolve, frozen

from draftmux.options import option
from draftmux.protocols import Router
from draftmux.routing import BaseRouter
from draftmux.types import Budget, Choice, Context, Needs, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftmux.protocols import Drafter, Resources
    from draftmux.types import Draft, Step


class Gate(ABC):
    """Says of every step whether it is to copy."""

    @abstractmethod
    def watch(self, context: Context) -> Any:
        """State for one sequence."""

    @abstractmethod
    def opens(self, state: Any, context: Context) -> bool:
        """Whether this step is to copy."""

    def saw(self, state: Any, step: Step) -> None:
        """Told of every step; by default nothing."""

    @property
    def readings(self) -> tuple[Reading, ...]:
        """What it reads off tapped states; by default nothing."""
        return ()


@frozen
class CopyGate(BaseRouter):
    """The copying drafter where the gate is open; elsewhere another drafter, or what another router chooses.

    The other drafter is also asked when the copying one has no draft after all; of a router in `otherwise`, its
    drafters in order, with the copy's budget.
    """

    copy: str = option("name of the drafter that copies")
    otherwise: str | Router | None = option(
        "name of the drafter for all other steps, or a router that chooses; without one they are plain",
        default=None,
        types=(str, Router),
    )
    budget: Budget = option("what a copy may hold at most", default=Budget())
    otherwise_budget: Budget | None = option("the same for the drafter `otherwise`; by default `budget`", default=None)

    def __attrs_post_init__(self) -> None:
        if self.inner is not None and self.otherwise_budget is not None:
            raise ValueError("'otherwise_budget' is for a drafter; a router in 'otherwise' has budgets of its own")
        if self.otherwise is None and self.otherwise_budget is not None:
            raise ValueError("'otherwise_budget' is for a drafter in 'otherwise', and there is none")

    @abstractmethod
    def gate(self, resources: Resources) -> Gate:
        """The gate, with all it reads at hand."""

    def reads(self) -> Needs:
        """What the gate needs of the target; by default nothing."""
        return Needs()

    @property
    def inner(self) -> Router | None:
        """The router for all other steps, if it is one."""
        return None if self.otherwise is None or isinstance(self.otherwise, str) else self.otherwise

    def fetch(self) -> None:
        """Let the inner router download what its `needs` have to know."""
        getattr(self.inner, "fetch", lambda: None)()

    @property
    def needs(self) -> Needs:
        """What the gate reads, and what the inner router needs."""
        own, inner = self.reads(), self.inner.needs if self.inner else Needs()
        both = {name: tuple(dict.fromkeys((*getattr(own, name), *getattr(inner, name)))) for name in ("taps", "models")}
        return Needs(**both)

    def uses(self) -> tuple[str, ...] | None:
        """The copying drafter, and the other one or whatever the inner router may choose."""
        if self.inner is None:
            return (self.copy,) if self.otherwise is None else (self.copy, str(self.otherwise))
        named = self.inner.uses()
        return None if named is None else tuple(dict.fromkeys((self.copy, *named)))

    @final
    def bind(self, resources: Resources) -> Router:
        """With its gate, and the inner router bound."""
        return BoundGate(self, self.gate(resources), self.inner.bind(resources) if self.inner else None)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Only when bound."""
        raise NotImplementedError("bind this router first")


@frozen(eq=False)
class Gated:
    """State for one sequence: the gate's own and the inner router's."""

    own: Any
    inner: Any


@define(eq=False)
class BoundGate(BaseRouter):
    """A router at work."""

    options: CopyGate
    gate: Gate
    inner: Router | None

    @property
    def needs(self) -> Needs:
        """As the options say, with what the gate and the inner router read off states."""
        inner = self.inner.needs.readings if self.inner is not None else ()
        return evolve(self.options.needs, readings=(*self.gate.readings, *inner))

    def uses(self) -> tuple[str, ...] | None:
        """As the options say."""
        return self.options.uses()

    def begin(self, context: Context) -> Gated:
        """State of the gate and of the inner router."""
        return Gated(self.gate.watch(context), self.inner.begin(context) if self.inner else None)

    def choose(self, state: Gated, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """A copy if the gate is open."""
        own = self.options
        if self.gate.opens(state.own, context):
            others = tuple(name for name in own.uses() or () if name != own.copy)
            return Choice(own.copy, own.budget, others, otherwise_budget=own.otherwise_budget)
        if self.inner is not None:
            return self.inner.choose(state.inner, context, drafters)
        return Choice(str(own.otherwise) if own.otherwise else None, own.otherwise_budget or own.budget)

    def observe(self, state: Gated, step: Step) -> None:
        """The gate and the inner router are told of every step, whoever has chosen it."""
        self.gate.saw(state.own, step)
        if self.inner is not None:
            self.inner.observe(state.inner, step)

    def trim(self, state: Gated, context: Context, name: str, draft: Draft) -> Sequence[int] | None:
        """As the inner router says, if it looks at drafts."""
        inner = getattr(self.inner, "trim", None)
        kept: Sequence[int] | None = None if inner is None else inner(state.inner, context, name, draft)
        return kept

    def report(self, state: Gated) -> Mapping[str, float]:
        """What the inner router has to report."""
        inner = getattr(self.inner, "report", None)
        found: Mapping[str, float] = inner(state.inner) if inner is not None else {}
        return found
