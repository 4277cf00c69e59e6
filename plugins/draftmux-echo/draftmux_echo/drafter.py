"""The drafter `echo`."""

from typing import Any

from attrs import frozen
from draftmux.drafting import TokenDrafter
from draftmux.options import option
from draftmux.types import Budget
from numpy.typing import NDArray


@frozen
class Echo(TokenDrafter):
    """Guess that the last `width` tokens come again, or fewer of them."""

    width: int = option("how many tokens to repeat", default=4, minimum=1)

    def draft(self, tokens: NDArray[Any], budget: Budget) -> list[list[int]]:
        """Ends of the text, the longest first."""
        return [tokens[-width:].tolist() for width in range(self.width, 0, -1)]
