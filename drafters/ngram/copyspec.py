"""CopySpec (arXiv 2502.08923): copy what followed the first occurrence of the last gamma tokens."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from draftmux.drafters.ngram import LONGEST, MOST
from draftmux.drafters.ngram.index import NgramIndex, continuation
from draftmux.drafting import SequenceDrafter
from draftmux.options import option
from draftmux.types import Budget, Context, Draft, Emits


@frozen
class CopySpec(SequenceDrafter):
    """Drafts one chain; without a match, nothing: a router's next drafter takes over."""

    emits: ClassVar[Emits] = Emits()

    gamma: int = option("tokens that must have occurred before", default=3, minimum=1, maximum=LONGEST)
    length: int = option("tokens to draft at most", default=10, minimum=1, maximum=MOST)
    periodic: bool = option("continue past the end of the text by repeating what is there, as LZ77 does", default=False)

    def begin(self, context: Context) -> NgramIndex:
        """The index of the sequence."""
        return NgramIndex([self.gamma], context.tokens)

    def propose_one(self, context: Context, state: NgramIndex, budget: Budget) -> Draft:
        """The chain after the first match; empty without a match."""
        state.catch_up(context.tokens)
        end = next(state.matches(self.gamma, oldest_first=True), None)
        if end is None:
            return Draft.empty()
        branch = continuation(context.tokens, end, self.length, periodic=self.periodic)
        return Draft.from_candidates([branch.tolist()], budget)
