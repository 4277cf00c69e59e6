"""Base class for router authors: everything but the choice has a default. Knows nothing of any particular router."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from draftmux.types import Choice, Context, Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.protocols import Drafter, Resources, Router
    from draftmux.types import Step


class BaseRouter(ABC):
    """A router without state or needs, until a subclass says otherwise."""

    @property
    def needs(self) -> Needs:
        """What it requires of the pipeline; by default nothing."""
        return Needs()

    def uses(self) -> tuple[str, ...] | None:
        """Names of the drafters it may choose; None means any."""
        return None

    def bind(self, resources: Resources) -> Router:
        """Take what the router needs of the pipeline; by default nothing."""
        return self

    def begin(self, context: Context) -> Any:
        """State for one sequence; by default none."""
        return None

    @abstractmethod
    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Which drafter drafts in this step, and how much."""

    def observe(self, state: Any, step: Step) -> None:
        """Told of every step of the sequence."""
