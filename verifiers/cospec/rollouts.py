"""Whole decodings with an arbiter, many at once through the engine, and what the arbiter saw and did in each.

Whoever decides is an arbiter like any other; it is watched on the way. Knows nothing of tasks, rewards or learning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, evolve, field, frozen

from draftmux.engine.scheduler import Scheduler
from draftmux.errors import RequestError
from draftmux.protocols import Resources
from draftmux.routers.fixed import Fixed
from draftmux.types import Accepts
from draftmux.verifiers.cospec.arbitration import Arbiter
from draftmux.verifiers.cospec.features import features
from draftmux.verifiers.cospec.network import Sample
from draftmux.verifiers.cospec.random import RandomArbiter
from draftmux.verifiers.cospec.reward import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from draftmux.engine.step import Parts
    from draftmux.generation import Generation
    from draftmux.protocols import VerifyRequest
    from draftmux.results import Result
    from draftmux.types import Acceptance, Context
    from draftmux.verifiers.cospec.arbitration import BoundArbitration
    from draftmux.verifiers.cospec.walk import Block

EXPLORED = 2  # times the size of a draft: where the keys of drawn decisions begin, behind those of other draws


@define(eq=False)
class Consulted:
    """One block that was put to the arbiter: what it saw, and at each place that it decided on, whether the drafted
    token was kept, and how likely the policy was to keep it. `idle` are decisions behind a refusal, by place, drawn
    though they had no effect, with their chances."""

    sample: Sample
    places: list[int] = field(factory=list)
    kept: list[bool] = field(factory=list)
    chances: list[float] = field(factory=list)
    idle: dict[int, tuple[bool, float]] = field(factory=dict)


@define(eq=False)
class Course:
    """One request: how far each block with a mismatch got, and what was put to the arbiter."""

    blocks: list[Reach] = field(factory=list)
    consulted: list[Consulted] = field(factory=list)

    @property
    def decisions(self) -> int:
        """Of the arbiter."""
        return sum(len(each.places) for each in self.consulted)

    @property
    def refused(self) -> int:
        """Of them."""
        return sum(len(each.kept) - sum(each.kept) for each in self.consulted)

    @property
    def kept_logprobs(self) -> list[float]:
        """The target's unprocessed log p of every token that was kept."""
        return [float(sample.features[place, 0]) for sample, place in self._kept()]

    @property
    def kept_pairs(self) -> list[tuple[int, int]]:
        """Every token that was kept, and the target's in its place."""
        return [(sample.drafted[place], sample.verified[place]) for sample, place in self._kept()]

    def _kept(self) -> Iterator[tuple[Sample, int]]:
        for each in self.consulted:
            yield from ((each.sample, place) for place, kept in zip(each.places, each.kept, strict=True) if kept)


@define(eq=False)
class Watching:
    """A verifier around an arbitration that keeps the course of every request.

    With `explore` decisions are drawn, with the score as the chance to keep, by noise of the request's seed; else the
    threshold decides. With `idle` those behind a refusal are drawn too.
    """

    inner: BoundArbitration
    explore: bool = False
    idle: bool = False
    courses: dict[str, Course] = field(factory=dict)
    _judged: dict[str, Block] = field(factory=dict, init=False)  # the last block of each request in this step
    _scores: dict[int, Sequence[float] | None] = field(factory=dict, init=False)  # of this step's blocks, by their id()
    lossless: bool = field(default=False, init=False)
    pathwise: bool = field(default=False, init=False)
    accepts: Accepts = field(default=Accepts(tree=False), init=False)

    def __attrs_post_init__(self) -> None:
        self.inner = evolve(self.inner, keep=self._keep, judge=Noted(self.inner.judge, self._scores))

    def bind(self, resources: Any) -> Watching:
        """Bound already."""
        return self

    def begin(self, context: Context) -> Any:
        """The arbitration's own state."""
        self.courses[context.request_id] = Course()
        return self.inner.begin(context)

    def accept(self, *args: Any) -> Acceptance:
        """One alone."""
        return self.inner.accept(*args)

    def accept_all(self, requests: Sequence[VerifyRequest]) -> list[Acceptance]:
        """All sequences of a step."""
        before = [len(self._course(request).consulted) for request in requests]
        self._judged.clear()
        self._scores.clear()
        found = self.inner.accept_all(requests)
        for request, count, acceptance in zip(requests, before, found, strict=True):
            self._note(request, count, acceptance)
        return found

    def report(self, state: Any) -> Mapping[str, float]:
        """The arbitration's own."""
        return self.inner.report(state)

    def _course(self, request: VerifyRequest) -> Course:
        return self.courses[request.context.request_id]

    def _keep(self, block: Block, node: int, score: float) -> bool:
        course = self._course(block.request)
        if self._judged.get(block.request.context.request_id) is not block:
            self._judged[block.request.context.request_id] = block
            course.consulted.append(Consulted(sample_of(block)))
        last = course.consulted[-1]
        kept = _drawn(block, node, score) if self.explore else self.inner.above(block, node, score)
        last.places.append(node)
        last.kept.append(kept)
        last.chances.append(score)
        return kept

    def _note(self, request: VerifyRequest, before: int, acceptance: Acceptance) -> None:
        course, accepted = self._course(request), len(acceptance.path)
        ends = request.context.generation.end_ids(self.inner.eos_ids)
        drafted = map(int, request.draft.tokens)  # what was drafted behind an end is no text
        size = next((count for count, token in enumerate(drafted, 1) if token in ends), len(request.draft))
        fresh = course.consulted[before:]
        matched = fresh[0].places[0] if fresh else accepted
        if matched < size:
            course.blocks.append(Reach(matched, accepted, size))
        if fresh and self.idle and not fresh[-1].kept[-1]:
            block = self._judged[request.context.request_id]
            later = [place for place in block.mismatches if place > fresh[-1].places[-1]]
            scores = self._scores[id(block)] or ()
            fresh[-1].idle = {place: (_drawn(block, place, scores[place]), scores[place]) for place in later}


def _drawn(block: Block, place: int, score: float) -> bool:
    return block.request.sampler.bernoulli(score, EXPLORED * len(block.verified) + place)


@frozen(eq=False)
class Noted(Arbiter):
    """An arbiter whose scores of a step are kept."""

    inner: Arbiter
    kept: dict[int, Sequence[float] | None]

    def begin(self, context: Context) -> Any:
        """The arbiter's own state."""
        return self.inner.begin(context)

    def scores(self, blocks: Sequence[Block]) -> Sequence[Sequence[float] | None]:
        """The arbiter's own."""
        found = self.inner.scores(blocks)
        self.kept.update((id(block), scores) for block, scores in zip(blocks, found, strict=True))
        return found


def sample_of(block: Block) -> Sample:
    """What an arbiter reads of a block, without the rest of the step: of the context what its window holds."""
    context = np.array(block.request.context.tokens[getattr(block.state, "start", 0) :])
    return Sample(context, block.drafted, block.verified, features(block).cpu().numpy())


@frozen(eq=False)
class Ask:
    """One rollout: the prompt's ids and how it is decoded; `name` is its own."""

    name: str
    tokens: tuple[int, ...]
    generation: Generation


def roll_out(parts: Parts, tokenizer: Any, asks: Sequence[Ask], batch: int) -> dict[str, Result]:
    """Decode all of them, up to `batch` at once; the first that fails ends it with its error."""
    scheduler = Scheduler(parts, tokenizer, lossless=False, max_batch=batch)
    for ask in asks:
        scheduler.submit(ask.tokens, ask.generation, ask.name)
    found: dict[str, Result] = {}
    for delta in scheduler.run():
        if isinstance(delta.error, RequestError):
            raise RequestError(f"problem {delta.request_id}: {delta.error}") from delta.error
        if delta.error is not None:
            raise delta.error
        if delta.result is not None:
            found[delta.request_id] = delta.result
    return found


def watching(
    parts: Parts, arbitration: BoundArbitration, explore: bool = False, idle: bool = False
) -> tuple[Parts, Watching]:
    """The same parts with a watched arbitration, and the router that always asks their one drafter."""
    verifier = Watching(arbitration, explore, idle)
    [name] = parts.drafters
    return evolve(parts, verifier=verifier, router=Fixed(drafter=name)), verifier


def refusing(parts: Parts) -> BoundArbitration:
    """Keeps no mismatch: the text is the target's own."""
    bound: BoundArbitration = RandomArbiter(rate=0.0).bind(Resources(backend=parts.backend))  # type: ignore[assignment]
    return bound
