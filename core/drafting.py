"""Base classes for drafter authors who think of one sequence at a time. Subclass, add options as attrs fields, done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, final

from draftmux.types import Budget, Context, Draft, Emits, Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from draftmux.protocols import Drafter, DraftRequest, Resources
    from draftmux.types import Step


class SequenceDrafter(ABC):
    """A drafter that looks at one sequence at a time; the batch is a loop over it."""

    needs: ClassVar[Needs] = Needs()
    emits: ClassVar[Emits] = Emits(tree=True)

    def uses(self) -> tuple[str, ...]:
        """Names of other drafters this one is made of."""
        return ()

    def bind(self, resources: Resources) -> Drafter:
        """Take what the drafter needs of the pipeline; by default nothing."""
        return self

    def begin(self, context: Context) -> Any:
        """State for one sequence; by default none."""
        return None

    @abstractmethod
    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """The draft for one sequence, within `budget`."""

    @final
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Drafts for a batch, one a request."""
        return [self.propose_one(request.context, request.state, request.budget) for request in requests]

    def observe(self, state: Any, step: Step) -> None:
        """Told of every step of the sequence, whoever drafted. Must only queue: the next propose may catch up."""


class TokenDrafter(SequenceDrafter):
    """The shortest way to a drafter: from the token ids so far to a list of guessed continuations."""

    @abstractmethod
    def draft(self, tokens: NDArray[Any], budget: Budget) -> Sequence[Sequence[int]]:
        """Candidate continuations of `tokens (T,)`, the best first. They are merged into a tree and cut to `budget`."""

    @final
    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """Merge the candidates into a tree."""
        return Draft.from_candidates(self.draft(context.tokens, budget), budget)
