"""A drafter's model at work: what all of them do alike."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from attrs import define

from draftmux.drafters.neural.growth import DraftModel, Sprout, grow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.backends.beside import Reader
    from draftmux.drafters.neural.drafter import NeuralDrafter
    from draftmux.drafters.neural.laws import Vocabulary
    from draftmux.protocols import BoundBackend, DraftRequest, Resources
    from draftmux.types import Context, Draft, Emits


@define(eq=False)
class BoundNeural(DraftModel):
    """Grows drafts. A subclass says what its model reads, as `DraftModel` asks, and how far it can go (`room`)."""

    options: NeuralDrafter
    backend: BoundBackend
    reader: Reader
    vocabulary: Vocabulary

    @property
    def emits(self) -> Emits:
        """As the options say."""
        return self.options.emits

    def uses(self) -> tuple[str, ...]:
        """No other drafter."""
        return ()

    def bind(self, resources: Resources) -> Any:
        """Bound already."""
        return self

    @abstractmethod
    def room(self, context: Context) -> int:
        """Levels that the model has positions for."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Drafts for a batch."""
        self.reader.sweep()
        shape = self.options.shape()
        return grow(self, [Sprout.plant(r, r.state.law, shape, self.room(r.context)) for r in requests])
