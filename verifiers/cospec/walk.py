"""The walk along a scored chain that puts every mismatch to an arbiter. One target pass serves the whole walk.

The target has scored each drafted token after the drafted ones before it, so once a mismatch is kept, what it says
further on is already about the text as it now stands. Knows no arbiter: a walk is a generator that gives out the block
to be judged and is sent the scores, so that the blocks of many sequences can be judged together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field, frozen

from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifiers.residual import excess, normalised, ratio

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.protocols import VerifyRequest
    from draftmux.sampling import Sampler

Walk = Generator["Block", Sequence[float] | None, Acceptance]  # gives out what is to be judged, is sent the scores
Keep = Callable[["Block", int, float], bool]


@frozen(eq=False)
class Block:
    """What an arbiter judges: a sequence with its draft, and `verified (K,)`, what the target has in place of each
    drafted token. Where the two are equal there is nothing to judge. `state` is the arbiter's own for the sequence."""

    request: VerifyRequest
    verified: tuple[int, ...]
    state: Any = None

    @property
    def drafted(self) -> tuple[int, ...]:
        """`(K,)`."""
        return tuple(self.request.draft.tokens.tolist())

    @property
    def mismatches(self) -> list[int]:
        """Places where the two differ."""
        return [place for place, pair in enumerate(zip(self.drafted, self.verified, strict=True)) if pair[0] != pair[1]]


@frozen
class Limits:
    """When a mismatch is not put to the arbiter at all: the target's token stands.

    `end_ids`: a target that wants to end is not overridden. At most so many mismatches of a block are kept, and so
    many at places in a row; None: any number.
    """

    end_ids: frozenset[int] = frozenset()
    per_block: int | None = None
    in_a_row: int | None = None


@define(eq=False)
class Tally:
    """Counts of one sequence: `blocks` verified, `asked` (judged by the arbiter), `decisions`, `kept`; and decisions
    that were not the arbiter's: `ends`, `banned`, `capped`, `unread` (it could not read the block), and `likeliest`,
    which stands."""

    counts: Counter[str] = field(factory=Counter)


class Basis(Protocol):
    """What counts as a mismatch of a chain, and what the target has in its place."""

    def alternative(self, node: int) -> int | None:
        """The target's token in place of `node`; None where the drafted one stands by the target's own rule."""

    def shown(self, node: int) -> int:
        """What the target has there, for an arbiter to see; nothing is drawn for it."""

    def bonus(self) -> int:
        """The token after the whole draft."""


@frozen(eq=False)
class Picks:
    """The target's own pick everywhere: greedy verification, or the seeded draws of exact match."""

    sampler: Sampler

    def alternative(self, node: int) -> int | None:
        """The pick, if it is another token."""
        pick = self.shown(node)
        return None if pick == int(self.sampler.draft.tokens[node]) else pick

    def shown(self, node: int) -> int:
        """The pick."""
        return self.sampler.pick(node - 1)

    def bonus(self) -> int:
        """The pick after the last node."""
        return self.sampler.pick(len(self.sampler.draft) - 1)


@define(eq=False)
class Residuals:
    """Speculative sampling (2211.17192): a mismatch is a token that the ratio test refuses; in its place stands a draw
    from what q left of p. The first draw of a walk has the noise of the verifier `rejection`, so refusing all is that.
    """

    sampler: Sampler
    drawn: bool = False

    def alternative(self, node: int) -> int | None:
        """The draw from the residual, if the test refuses `node`."""
        sampler, token = self.sampler, int(self.sampler.draft.tokens[node])
        p, q = sampler.p(node - 1), sampler.q(node)
        if sampler.bernoulli(ratio(p, q, token), node):
            return None
        return self._draw(normalised(excess(p, q), otherwise=p), node)

    def shown(self, node: int) -> int:
        """The likeliest token."""
        return int(self.sampler.logits(node - 1).argmax())

    def bonus(self) -> int:
        """A draw from p after the last node."""
        last = len(self.sampler.draft)
        return self._draw(self.sampler.p(last - 1), last)

    def _draw(self, law: Tensor, key: int) -> int:
        first, self.drawn = not self.drawn, True
        return self.sampler.draw(law, ROOT if first else key)


@frozen
class Rules:
    """How a walk goes: its limits, who decides by a score, whether mismatches behind a kept one are judged anew, and
    the ids with which the text ends."""

    limits: Limits
    keep: Keep
    rescore: bool = False
    ends: frozenset[int] = frozenset()


@define(eq=False)
class Walker:
    """One sequence's walk down its chain."""

    request: VerifyRequest
    basis: Basis
    rules: Rules
    tally: Tally
    state: Any = None
    kept: list[int] = field(factory=list, init=False)
    _block: Block | None = field(default=None, init=False)
    _scores: Sequence[float] | None = field(default=(), init=False)

    def walk(self) -> Walk:
        """The accepted run: up to the first mismatch that is not kept, with the target's token after it. Behind an end
        nothing is judged: it will not be text."""
        tokens, counts = self.request.draft.tokens.tolist(), self.tally.counts
        counts["blocks"] += 1
        for node, token in enumerate(tokens):
            other = self.basis.alternative(node)
            if other is not None:
                reason = refusal(self.request, node, other, self.kept, self.rules.limits)
                if reason is not None:
                    counts[reason] += 1
                if reason is not None or not (yield from self._kept(node, other)):
                    return Acceptance(tuple(range(node)), other)
                self.kept.append(node)
            if token in self.rules.ends:
                return Acceptance(tuple(range(node + 1)), token)
        return Acceptance(tuple(range(len(tokens))), self.basis.bonus())

    def _kept(self, node: int, other: int) -> Generator[Block, Sequence[float] | None, bool]:
        """The arbiter's decision on one mismatch; it is asked if it was not before."""
        counts = self.tally.counts
        if self._block is None or (self.rules.rescore and self.kept):
            self._block = Block(self.request, self._verified(node, other), self.state)
            counts["asked"] += 1
            self._scores = yield self._block
        elif self._block.drafted[node] == self._block.verified[node]:
            counts["likeliest"] += (
                1  # refused by the ratio test, though it is what the arbiter was shown as the target's
            )
            return True
        if self._scores is None:
            counts["unread"] += 1
            return False
        keep = self.rules.keep(self._block, node, float(self._scores[node]))
        counts.update(decisions=1, kept=int(keep))
        return keep

    def _verified(self, node: int, other: int) -> tuple[int, ...]:
        """The draft's own tokens before a mismatch, all of which stand; there, the target's; then what it is shown to
        have."""
        tokens = self.request.draft.tokens
        return (*tokens[:node].tolist(), other, *map(self.basis.shown, range(node + 1, len(tokens))))


def refusal(request: VerifyRequest, node: int, other: int, kept: Sequence[int], limits: Limits) -> str | None:
    """Why the target's token stands without a question, if it does."""
    if other in limits.end_ids:
        return "ends"
    token = int(request.draft.tokens[node])
    if not bool(request.sampler.logits(node - 1)[token] > -math.inf):
        return "banned"
    in_a_row = sum(1 for back, place in enumerate(reversed(kept), 1) if place == node - back)
    full = limits.per_block is not None and len(kept) >= limits.per_block
    if full or (limits.in_a_row is not None and in_a_row >= limits.in_a_row):
        return "capped"
    return None
