"""What verifiers have in common that put mismatches to an arbiter, learned or not."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

from attrs import define, evolve, field, frozen

from draftmux.options import option
from draftmux.protocols import VerifyRequest
from draftmux.types import Acceptance, Accepts
from draftmux.verifiers.cospec.walk import Limits, Picks, Residuals, Rules, Tally, Walker
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from draftmux.protocols import Resources, Verifier
    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores
    from draftmux.verifiers.cospec.walk import Block, Keep, Walk


class Arbiter(ABC):
    """Judges drafted tokens that are not the target's. `threshold`: where it would draw the line itself."""

    threshold: float = 0.5

    def begin(self, context: Context) -> Any:
        """State for one sequence; by default none."""
        return None

    @abstractmethod
    def scores(self, blocks: Sequence[Block]) -> Sequence[Sequence[float] | None]:
        """Per block and drafted token, how likely the drafted one is to be the better choice, `(K,)`, 0 to 1; None for
        a block that it cannot read, whose mismatches are refused.

        The blocks are of different sequences. Scores where both tokens are the same are not looked at.
        """


@define(eq=False)
class Arbitrated:
    """One sequence: the arbiter's own state, and what was counted."""

    own: Any
    tally: Tally
    seconds: float = 0.0


@frozen
class Arbitration(BaseVerifier):
    """Follows a drafted chain past mismatches that an arbiter lets stand. All refused, it is greedy verification,
    `rejection` or `exact-match`, according to `basis`.

    A banned or impossible token never stands, nor does one in the place of a token with which the target would end.
    """

    lossless: ClassVar[bool] = False
    accepts: ClassVar[Accepts] = Accepts(tree=False)

    threshold: float | None = option(
        "score from which a drafted token is kept against the target; above 1 none is", default=0.5, minimum=0
    )
    basis: str = option(
        "sampling, a mismatch is what the ratio test of p and q refuses (residual), or what is not the target's own "
        "seeded draw (coupled)",
        default="residual",
        choices=("residual", "coupled"),
    )
    allow_eos_override: bool = option("whether a draft may go on where the target would end", default=False)
    max_overrides_per_block: int | None = option("mismatches of a draft that are kept at most", default=None, minimum=0)
    max_consecutive_overrides: int | None = option(
        "mismatches at places in a row that are kept at most", default=None, minimum=0
    )
    rescore: bool = option("judge later mismatches of a draft anew once one was kept", default=False)

    @abstractmethod
    def judge(self, resources: Resources) -> Arbiter:
        """The arbiter, with all it reads at hand."""

    @final
    def bind(self, resources: Resources) -> Verifier:  # type: ignore[override]
        """With its arbiter."""
        ends = frozenset() if resources.backend is None else resources.backend.eos_ids
        judge = self.judge(resources)
        own = self if self.threshold is not None else evolve(self, threshold=judge.threshold)
        return BoundArbitration(own, judge, ends)

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """Only when bound."""
        raise NotImplementedError("bind this verifier first")


@frozen(eq=False)
class BoundArbitration:
    """At work. The arbiter is asked once for all sequences that have a mismatch."""

    options: Arbitration
    judge: Arbiter
    eos_ids: frozenset[int]
    keep: Keep | None = None  # who decides by a score; by default the threshold
    lossless: bool = field(default=False, init=False)
    pathwise: bool = field(default=False, init=False)
    accepts: Accepts = field(default=Accepts(tree=False), init=False)

    def bind(self, resources: Resources) -> BoundArbitration:
        """Bound already."""
        return self

    def begin(self, context: Context) -> Arbitrated:
        """The arbiter's state, and no counts."""
        return Arbitrated(self.judge.begin(context), Tally())

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """One sequence, of which nothing is remembered."""
        [found] = self.accept_all([VerifyRequest(context, draft, scores, sampler, self.begin(context))])
        return found

    def accept_all(self, requests: Sequence[VerifyRequest]) -> list[Acceptance]:
        """All sequences of a step."""
        walks = [self._walk(request) for request in requests]
        found: dict[int, Acceptance] = {}
        waiting: dict[int, Block] = {}
        for i in range(len(walks)):
            _advance(partial(next, walks[i]), i, waiting, found)
        while waiting:
            asked, waiting = waiting, {}
            started = time.perf_counter()
            judged = self.judge.scores(list(asked.values()))
            share = (time.perf_counter() - started) / len(asked)
            for i, scores in zip(asked, judged, strict=True):
                requests[i].state.seconds += share
                _advance(partial(walks[i].send, scores), i, waiting, found)
        return [found[i] for i in range(len(walks))]

    def report(self, state: Arbitrated) -> Mapping[str, float]:
        """Counts of a request, and the seconds that its share of the arbiter's passes took."""
        return {**{name: float(count) for name, count in state.tally.counts.items()}, "seconds": state.seconds}

    def above(self, block: Block, node: int, score: float) -> bool:
        """Whether a score reaches the threshold."""
        assert self.options.threshold is not None
        return score >= self.options.threshold

    def _walk(self, request: VerifyRequest) -> Walk:
        options, sampler, state = self.options, request.sampler, request.state
        basis = Picks(sampler) if sampler.rule.greedy or options.basis == "coupled" else Residuals(sampler)
        ends = request.context.generation.end_ids(self.eos_ids)
        limits = Limits(
            frozenset() if options.allow_eos_override else ends,
            options.max_overrides_per_block,
            options.max_consecutive_overrides,
        )
        keep = self.keep or self.above
        return Walker(request, basis, Rules(limits, keep, options.rescore, ends), state.tally, state.own).walk()


def _advance(go: Callable[[], Block], i: int, waiting: dict[int, Block], found: dict[int, Acceptance]) -> None:
    """Let a walk go on until it asks again, or has ended."""
    try:
        waiting[i] = go()
    except StopIteration as end:
        found[i] = end.value
