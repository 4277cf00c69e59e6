"""Prompt lookup decoding (apoorvumang/prompt-lookup-decoding): what followed the last n-gram when it stood before."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, ClassVar, Literal

from attrs import frozen

from draftmux.drafters.ngram import MOST
from draftmux.drafters.ngram.index import NgramIndex, continuation, match_length
from draftmux.drafting import SequenceDrafter
from draftmux.options import option
from draftmux.types import Budget, Context, Draft, Emits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

MAX_N = 16  # every size from min_n to max_n is indexed, so memory per token grows with the square
POSITIONS = ("latest", "first")


@frozen
class PromptLookup(SequenceDrafter):
    """Drafts one chain after a match of the longest n-gram that has one.

    A match close to the end of the text has little after it. So `latest` takes the newest match that has a full draft
    after it, and where none has, the oldest one, which has the most; `periodic` takes the newest and repeats.
    """

    emits: ClassVar[Emits] = Emits()

    max_n: int = option("longest n-gram that is looked up first", default=3, minimum=1, maximum=MAX_N)
    min_n: int = option("shortest n-gram that is looked up last", default=1, minimum=1, maximum=MAX_N)
    length: int = option("tokens to draft at most", default=10, minimum=1, maximum=MOST)
    position: Literal["latest", "first"] = option("which match to continue", default="latest", choices=POSITIONS)
    periodic: bool = option("continue past the end of the text by repeating what is there, as LZ77 does", default=False)
    growth: float = option(
        "draft at most growth * (length of the match + 1) tokens, so a weak match costs little; 0: always `length`",
        default=0.0,
        minimum=0,
        maximum=MOST,
    )

    def __attrs_post_init__(self) -> None:
        if self.min_n > self.max_n:
            raise ValueError(f"'min_n' must not be above 'max_n': {self.min_n} > {self.max_n}")

    def begin(self, context: Context) -> NgramIndex:
        """The index of the sequence."""
        return NgramIndex(range(self.min_n, self.max_n + 1), context.tokens)

    def propose_one(self, context: Context, state: NgramIndex, budget: Budget) -> Draft:
        """The chain after the chosen match; empty without a match."""
        state.catch_up(context.tokens)
        room = min(self.length, budget.max_nodes, budget.max_depth)
        for size in range(self.max_n, self.min_n - 1, -1):
            end = self._choose(state.matches(size, oldest_first=self.position == "first"), len(context.tokens), room)
            if end is not None:
                length = self._length(context.tokens, end, room)
                branch = continuation(context.tokens, end, length, periodic=self.periodic)
                return Draft.from_candidates([branch.tolist()], budget)
        return Draft.empty()

    def _choose(self, ends: Iterator[int], total: int, room: int) -> int | None:
        oldest = None
        for end in ends:
            if self.periodic or self.position == "first" or total - 1 - end >= room:
                return end
            oldest = end
        return oldest

    def _length(self, tokens: NDArray[np.int64], end: int, room: int) -> int:
        if not self.growth:
            return room
        limit = min(room / self.growth, len(tokens))  # a growth next to 0 would need a match without end
        return min(room, int(self.growth * (match_length(tokens, end, ceil(limit)) + 1)))
