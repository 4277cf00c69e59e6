"""Context copy (SwitchSD): the recent continuations of the last tokens, merged into one tree."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from draftmux.drafters.ngram import LONGEST, MOST
from draftmux.drafters.ngram.index import NgramIndex, continuation
from draftmux.drafting import SequenceDrafter
from draftmux.errors import PluginError
from draftmux.options import option
from draftmux.types import Budget, Context, Draft, Emits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from draftmux.protocols import Drafter, Resources


@frozen
class ContextCopy(SequenceDrafter):
    """Drafts up to `max_branches` continuations, the newest first, each at most `max_depth` long.

    When the budget is short of nodes the newest branches get them; a smaller `max_depth` leaves some to the others.
    """

    emits: ClassVar[Emits] = Emits(tree=True)

    min_match: int = option("tokens that must have occurred before (kappa)", default=5, minimum=1, maximum=LONGEST)
    max_branches: int = option("continuations to draft at most (W)", default=10, minimum=1, maximum=MOST)
    max_depth: int = option("tokens of one continuation at most (D)", default=20, minimum=1, maximum=MOST)
    max_scan: int = option(
        "matches to look at, at most; bounds the time on repetitive text", default=64, minimum=1, maximum=MOST
    )
    periodic: bool = option("continue past the end of the text by repeating what is there, as LZ77 does", default=False)
    skip_blank: bool = option("draft nothing after `min_match` tokens of mere white space", default=False)

    def bind(self, resources: Resources) -> Drafter:
        """Take the tokenizer if `skip_blank` needs it; PluginError when there is none."""
        if not self.skip_blank:
            return self
        if resources.tokenizer is None:
            raise PluginError("context-copy: `skip_blank: true` needs a tokenizer and there is none; set it to false")
        return _NotAfterBlanks(self, resources.tokenizer)

    def begin(self, context: Context) -> NgramIndex:
        """The index of the sequence."""
        return NgramIndex([self.min_match], context.tokens)

    def propose_one(self, context: Context, state: NgramIndex, budget: Budget) -> Draft:
        """The tree of continuations; empty without a match."""
        state.catch_up(context.tokens)
        depth = min(self.max_depth, budget.max_depth)
        ends = islice(state.matches(self.min_match), self.max_scan)
        branches = (continuation(context.tokens, end, depth, periodic=self.periodic).tolist() for end in ends)
        return Draft.from_candidates(_distinct(branches, self.max_branches), budget)


def _distinct(branches: Iterable[list[int]], most: int) -> list[list[int]]:
    """The first `most` different branches. Newer ones are never longer, so none can be a prefix of an earlier one."""
    kept: list[list[int]] = []
    for branch in branches:
        if len(kept) == most:
            break
        if branch not in kept:
            kept.append(branch)
    return kept


@frozen
class _NotAfterBlanks(SequenceDrafter):
    """A context copy that does not trust a match of white space alone."""

    copy: ContextCopy
    tokenizer: Any

    def begin(self, context: Context) -> NgramIndex:
        return self.copy.begin(context)

    def propose_one(self, context: Context, state: NgramIndex, budget: Budget) -> Draft:
        suffix = context.tokens[-self.copy.min_match :].tolist()
        # Some tokenizers drop leading spaces when they decode, so blank text may come back empty.
        if not self.tokenizer.decode(suffix).strip():
            return Draft.empty()
        return self.copy.propose_one(context, state, budget)
