"""Base class for verifier authors. Knows nothing of any particular rule of acceptance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from draftmux.types import Accepts

if TYPE_CHECKING:
    from draftmux.protocols import Resources
    from draftmux.sampling import Sampler
    from draftmux.types import Acceptance, Context, Draft, Scores


class BaseVerifier(ABC):
    """A verifier of any draft that needs nothing, until a subclass says otherwise. `lossless` is the author's to say.

    Every random decision goes through `sampler.bernoulli` and `sampler.draw`: their noise is independent of the draft.
    """

    lossless: ClassVar[bool]
    pathwise: ClassVar[bool] = False
    accepts: ClassVar[Accepts] = Accepts()

    def bind(self, resources: Resources) -> Self:
        """Take what the verifier needs of the pipeline; by default nothing."""
        return self

    @abstractmethod
    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """The path of the draft that stands, and the token after it."""
