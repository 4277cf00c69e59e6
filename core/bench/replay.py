"""Routers played along recorded drafts: what they would have chosen, and how long it would have taken.

Greedily, a draft's accepted length is what it has in common with the text that follows, whoever drafts. So one plain
run, in which every drafter is asked at every place, holds the runs of all routers. Only what a drafter makes of a
smaller budget is guessed: the first of its nodes, which is exact for chains. Seconds are those of a cost curve and of
the drafters' own recorded `propose`; a model's are shared out over its draft's levels.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, evolve, field, frozen

from draftmux.arrays import frozen_view
from draftmux.counterfactual import Walk
from draftmux.engine.affordable import affordable_nodes
from draftmux.engine.metrics import Metrics
from draftmux.engine.scheduler import Scheduler
from draftmux.pruning import only, within
from draftmux.routing import BaseRouter
from draftmux.types import AUTO, UNLIMITED, Acceptance, Budget, Choice, Context, Draft, Needs, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from draftmux.engine.step import Parts
    from draftmux.generation import Generation
    from draftmux.protocols import Drafter, Router
    from draftmux.types import Reading

CHEAP = 0.01  # of a plain step: a draft that takes less costs the same at any depth
PLAIN = "none"


@frozen(eq=False)
class Recording:
    """One request: its text, of `limit` tokens at most, and at every place of it all drafts, and what was read off the
    newest state."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    limit: int
    drafts: list[Mapping[str, Draft]]
    readings: list[Mapping[Reading, float]]
    seconds: Mapping[str, float]  # of a `propose`, on average

    def accepted(self, at: int, draft: Draft) -> Walk:
        """The walk of a draft along the text from token `at` on."""
        walk = Walk(0, draft)
        walk.follow(self.tokens[at:])
        return walk


@define(eq=False)
class Asking(BaseRouter):
    """Decodes plainly, asks everybody, and keeps what it is shown."""

    budget: Budget
    needs: Needs
    steps: list[Step] = field(factory=list)
    readings: list[Mapping[Reading, float]] = field(factory=list)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """No draft, but all are looked at."""
        self.readings.append(dict(context.readings))
        return Choice(None, beside=dict.fromkeys(drafters, self.budget))

    def observe(self, state: Any, step: Step) -> None:
        """Keep the drafts."""
        self.steps.append(step)


def record(parts: Parts, tokenizer: Any, prompt: Sequence[int], generation: Generation, budget: Budget) -> Recording:
    """Decode plainly with the drafters and the readings of a pipeline's parts; drafts keep `budget`."""
    router = Asking(budget, Needs(readings=parts.readings))
    scheduler = Scheduler(evolve(parts, router=router), tokenizer)
    scheduler.submit(tuple(prompt), evolve(generation, temperature=0.0))
    [delta] = [delta for delta in scheduler.run() if delta.result is not None or delta.error is not None]
    if delta.error is not None or delta.result is None:
        raise delta.error or RuntimeError("a request ended without a result")
    drafts: list[Mapping[str, Draft]] = [
        {name: evolve(draft, q=None) for name, draft in step.beside.items()} for step in router.steps
    ]
    seconds = delta.result.metrics.draft_seconds
    limit = min(generation.max_new_tokens, (parts.backend.max_length or UNLIMITED) - len(prompt))
    return Recording(tuple(prompt), delta.result.tokens, limit, drafts, router.readings, seconds)


@define(eq=False)
class Replay:
    """One router along one recording, with the costs of `cost` (seconds of a pass over root and so many nodes)."""

    router: Router
    recording: Recording
    cost: Callable[[int], float]
    generation: Generation
    readings: Mapping[Reading, Reading] = field(factory=dict)  # the router's own -> those of the recording
    metrics: Metrics = field(factory=Metrics)
    whole: Counter[str] = field(factory=Counter)  # steps, by drafter, whose draft was accepted to its full depth
    seconds: float = 0.0

    def run(self) -> Replay:
        """From the first token to the last."""
        state, at = self.router.begin(self._context(0)), 0
        while at < len(self.recording.tokens):
            step = self._step(state, at)
            self.metrics.record(step)
            self.router.observe(state, step)
            at += len(step.committed)
        return self

    def _context(self, at: int) -> Context:
        own = self.recording
        ids = frozen_view(np.array([*own.prompt, *own.tokens[:at]], dtype=np.int64))
        seen = {own_reading: own.readings[at][theirs] for own_reading, theirs in self.readings.items()}
        remaining, known = own.limit - at, self.metrics.draft_seconds
        return Context("replay", ids, len(own.prompt), remaining, {}, (), self.generation, known, seen)

    def _step(self, state: Any, at: int) -> Step:
        context = self._context(at)
        choice = self.router.choose(state, context, dict.fromkeys(self.recording.drafts[at]))  # type: ignore[arg-type]
        asked: dict[str, Draft] = {}
        draft, drafter = Draft.empty(), None
        for name in choice.candidates:
            asked[name] = self._ask(name, at, choice.budget_of(name))
            trim = getattr(self.router, "trim", None)
            kept = trim(state, context, name, asked[name]) if trim is not None and len(asked[name]) else None
            draft = asked[name] if kept is None else only(asked[name], sorted(kept))
            if len(draft):
                drafter = name
                break
        for name, budget in choice.beside.items():
            if name not in asked:
                asked[name] = self._ask(name, at, budget)
        walk = self.recording.accepted(at, draft)
        path = tuple(draft.path_to(walk.node))
        committed = self.recording.tokens[at : at + len(path) + 1]
        self.seconds += self.cost(len(draft))
        if drafter is not None and len(path) == int(draft.depths.max()):
            self.whole[drafter] += 1
        acceptance = Acceptance(path, committed[-1])
        beside = {name: asked[name] for name in choice.beside}
        return Step(choice, drafter, draft, acceptance, committed, {}, {"score": self.cost(len(draft))}, beside)

    def _ask(self, name: str, at: int, budget: Budget) -> Draft:
        """The recorded draft, as far as the budget and the end of the text let it go, and what it takes."""
        whole = self.recording.drafts[at][name]
        nodes = affordable_nodes(self.cost) if budget.max_nodes >= AUTO else budget.max_nodes
        room = budget.within(Budget(nodes, self.recording.limit - at - 1))
        if not min(room.max_nodes, room.max_depth, room.max_branches):
            return Draft.empty()
        draft = within(whole, room)
        seconds = self.recording.seconds.get(name, 0.0)
        if seconds > CHEAP * self.cost(0) and len(whole):
            seconds *= int(draft.depths.max(initial=0)) / int(whole.depths.max())
        self.metrics.record_proposal(name, seconds)
        self.seconds += seconds
        return draft


def oracle(recording: Recording, cost: Callable[[int], float], names: Sequence[str]) -> tuple[float, Counter[str]]:
    """Seconds, and steps by drafter, of the shortest way through the text: at each place any drafter, cut at any depth,
    or none. It knows what comes, which no router does."""
    ways: list[tuple[float, Counter[str]]] = [(0.0, Counter())] * (len(recording.tokens) + 1)
    for at in range(len(recording.tokens) - 1, -1, -1):
        options = [(cost(0) + ways[at + 1][0], PLAIN, at + 1)]
        for name in names:
            whole = recording.drafts[at][name]
            depth = int(whole.depths.max(initial=0))
            for level in range(1, depth + 1):
                draft = within(whole, Budget(max_depth=level))
                seconds = recording.seconds[name]
                seconds *= level / depth if seconds > CHEAP * cost(0) else 1.0
                end = min(at + 1 + recording.accepted(at, draft).depth, len(recording.tokens))
                options.append((cost(len(draft)) + seconds + ways[end][0], name, end))
        seconds, name, end = min(options, key=lambda option: option[0])
        ways[at] = seconds, ways[end][1] + Counter([name])
    return ways[0]
