"""What a draft is worth before it is made, and which of its nodes are once it is. Knows chances and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from draftmux.types import Budget


@frozen
class Play:
    """A drafter at its best size, and what that gains."""

    drafter: str
    gain: float
    budget: Budget


def worth_scoring(chances: NDArray[np.float64], prices: NDArray[np.float64]) -> list[int]:
    """The nodes, ascending, with the most expected tokens minus their price.

    `chances (N,)`: of each node to be accepted, no higher than its parent's. `prices (M+1,)`: of scoring so many nodes,
    in tokens; a larger pass may be the cheaper one. Any number of likeliest nodes is a tree, and the best of its size.
    """
    order = np.argsort(-chances, kind="stable")[: len(prices) - 1]
    cheapest = np.minimum.accumulate(prices[::-1])[::-1]
    gains = np.concatenate([[0.0], np.cumsum(chances[order])]) - cheapest[: len(order) + 1]
    return sorted(order[: int(gains.argmax())].tolist())
