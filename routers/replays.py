"""Copies along a finished text: what a copying drafter would have had accepted, wherever a gate is open.

Exact for greedy texts, which do not depend on who drafted them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from draftmux.counterfactual import Walk
from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.drafters.ngram.index import NgramIndex
from draftmux.generation import Generation
from draftmux.types import Budget, Context, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@frozen
class Copying:
    """What a copy offers: after `min_match` tokens (kappa), `max_branches` (W) of up to `max_depth` (D) tokens."""

    min_match: int
    max_branches: int
    max_depth: int


def steps(
    ids: Sequence[int], prompt_length: int, copying: Copying, gate: Callable[[int], bool]
) -> Iterator[tuple[int, Draft, int, bool]]:
    """Of every step (tokens before it, draft, accepted tokens, whether the text says that there were no more). Where
    the gate, given the root's place, is shut, the draft is empty, and the step gives one token."""
    copy = ContextCopy(min_match=copying.min_match, max_branches=copying.max_branches, max_depth=copying.max_depth)
    tokens, index = np.array(ids, dtype=np.int64), NgramIndex([copying.min_match], np.zeros(0, dtype=np.int64))
    at = prompt_length
    while at < len(tokens):
        draft = Draft.empty()
        if gate(at - 1):
            context = Context("replay", tokens[:at], prompt_length, len(tokens), {}, (), Generation())
            draft = copy.propose_one(context, index, Budget())
        walk = Walk(0, draft)
        known = walk.follow(ids[at:])
        yield at, draft, walk.depth, known
        at += 1 + walk.depth
