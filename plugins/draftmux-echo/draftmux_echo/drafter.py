"""The echo drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.drafting import TokenDrafter
from draftmux.options import option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from draftmux.types import Budget


@frozen
class Echo(TokenDrafter):
    """Guess that the last `width` tokens are said once more."""

    width: int = option("how many tokens to repeat", default=4, minimum=1)

    def draft(self, tokens: NDArray[Any], budget: Budget) -> list[list[int]]:
        """One candidate: the end of the text."""
        return [tokens[-self.width :].tolist()]
