"""The router that plays what is likely to bring most: expected tokens minus what their time could bring otherwise."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, evolve, field, frozen

from draftmux.drafters.ngram import LONGEST
from draftmux.drafters.ngram.index import NgramIndex
from draftmux.options import option
from draftmux.routers.cost_aware.estimates import Estimates, Seen
from draftmux.routers.cost_aware.state import Asked, Run
from draftmux.routers.cost_aware.worth import Play, worth_scoring
from draftmux.routers.linear_probe.artefact import read_about
from draftmux.routers.linear_probe.scorer import Scorer, load_scorer, states_for
from draftmux.routing import BaseRouter
from draftmux.types import Budget, Choice, Context, Draft, Needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from draftmux.protocols import Drafter, Resources, Router
    from draftmux.types import Step

CHEAP = 0.01  # of a plain step: a draft that takes less may be made to be looked at alone
WARM = 32.0  # drafts of every kind that a fresh request believes to have seen, with `memory: start`
RETRY = 48  # steps after which a drafter that was not asked is played once more, whatever is believed of it


@frozen
class CostAware(BaseRouter):
    """Plays the drafter, branches and depth with most `tokens - rate * seconds`, or none.

    Tokens are those that drafts of a kind have had accepted so far; a kind is how many of the last tokens occurred
    before and, with a probe, what that says of the newest hidden state. Of a draft whose drafter says how sure it is of
    each node, only the nodes are scored that pay by what such confidence has been worth. Seconds are those of a pass of
    so many rows and of the drafter, as measured; the rate is what the last steps made of theirs. Cheap drafters are
    asked at every step, and learned from whether they are played or not.
    """

    drafters: list[str] = option("names of the drafters to choose from")
    budget: Budget = option("the largest draft of all", default=Budget(31, 12, 4))
    matches: list[int] = option(
        "tokens that occurred before, ascending: places from one number to the next are of a kind",
        default=[1, 2, 3, 5, 8],
    )
    probe: str | None = option(
        "folder, `package:NAME/PATH` or hub id of a probe that `draftmux train probe` has written", default=None
    )
    revision: str | None = option("of a probe on the hub", default=None)
    scores: list[float] = option(
        "scores of the probe, ascending: places from one to the next are of a kind", default=[0.1, 0.5, 0.9]
    )
    memory: str = option(
        "request: each learns anew; start: from what was seen so far; process: all requests are one",
        default="request",
        choices=("request", "start", "process"),
    )

    def __attrs_post_init__(self) -> None:
        if not self.drafters or len(set(self.drafters)) < len(self.drafters):
            raise ValueError(f"'drafters' must name at least one drafter, and each only once: {self.drafters}")
        ascending = self.matches == sorted(set(self.matches))
        if not self.matches or not ascending or not 1 <= self.matches[0] <= self.matches[-1] <= LONGEST:
            raise ValueError(f"'matches' must be numbers from 1 to {LONGEST}, ascending: {self.matches}")
        if self.scores != sorted(set(self.scores)) or not all(0 < score < 1 for score in self.scores):
            raise ValueError(f"'scores' must be numbers between 0 and 1, ascending: {self.scores}")
        if not all(1 <= size <= 256 for size in (self.budget.max_nodes, self.budget.max_depth)):
            raise ValueError(f"'budget' must give max_nodes and max_depth from 1 to 256: {self.budget}")
        if not self.budget.max_branches:
            raise ValueError(f"'budget' must give max_branches from 1 on, or leave it out: {self.budget}")

    def fetch(self) -> None:
        """Download what says which hidden state is read."""
        if self.probe is not None:
            read_about(self.probe, self.revision)

    @property
    def needs(self) -> Needs:
        """The probe's hidden state."""
        return Needs() if self.probe is None else states_for(self.probe, self.revision)

    def uses(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self.drafters)

    def bind(self, resources: Resources) -> Router:
        """Load the probe; see to it that what passes cost is measured now, should nobody have done so before."""
        scorer = None if self.probe is None else load_scorer(self.probe, self.revision, resources)[0]
        if resources.backend is None:
            return BoundCostAware(self, lambda nodes: 1.0, scorer)
        resources.backend.cost(0)
        return BoundCostAware(self, resources.backend.cost, scorer)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Only when bound."""
        raise NotImplementedError("bind this router first")

    @property
    def branches(self) -> list[int]:
        """Numbers of branches that are weighed: powers of two, and the most there may be."""
        most = min(self.budget.max_branches, self.budget.max_nodes)
        return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]

    @property
    def edges(self) -> list[float]:
        """Scores that part kinds of places; none without a probe."""
        return self.scores if self.probe is not None else []

    def estimates(self) -> dict[str, Estimates]:
        """Of all drafters, knowing nothing."""
        kinds = (len(self.matches) + 1) * (len(self.edges) + 1)
        return {name: Estimates(kinds, self.branches, self.budget.max_depth) for name in self.drafters}


@define(eq=False, slots=False)
class BoundCostAware(BaseRouter):
    """A router that knows what a pass over the root and so many nodes costs, in seconds."""

    options: CostAware
    cost: Callable[[int], float]
    scorer: Scorer | None = None
    shared: dict[str, Estimates] = field(init=False)
    _sizes: NDArray[np.int64] = field(init=False)  # (branches, depth): nodes of whole drafts so wide and deep

    def __attrs_post_init__(self) -> None:
        self.shared = self.options.estimates()
        levels = np.arange(1, self.options.budget.max_depth + 1)
        self._sizes = np.minimum(np.array(self.options.branches)[:, None] * levels, self.options.budget.max_nodes)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """Of passes over 0 to `max_nodes` nodes. Asked for by the first request: a backend may compile until then."""
        return np.array([self.cost(nodes) for nodes in range(self.options.budget.max_nodes + 1)])

    def uses(self) -> tuple[str, ...]:
        """As the options say."""
        return self.options.uses()

    @property
    def needs(self) -> Needs:
        """As the options say, with the probe's score."""
        return evolve(self.options.needs, readings=() if self.scorer is None else (self.scorer.reading,))

    def begin(self, context: Context) -> Run:
        """What is believed beforehand."""
        memory = self.options.memory if context.generation.greedy else "request"
        own = self.shared if memory == "process" else self.options.estimates()
        if memory == "start":
            for name, estimates in own.items():
                estimates.start_from(self.shared[name], WARM)
        index, rate = NgramIndex(self.options.matches, context.tokens), 1 / float(self.costs[0])
        return Run(own, index, dict.fromkeys(own, 0), rate, self.shared if memory == "start" else {})

    def choose(self, state: Run, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """The best of all drafters at all sizes, or no draft."""
        self._book(state, context.draft_seconds)
        state.choosing, state.remaining, state.whole = True, context.remaining, {}
        state.kind = self._kind(state, context)
        plays = [self._best(state, name, context) for name in self.options.drafters]
        plain = 1 - state.rate * self.costs[0]
        worth = sorted((play for play in plays if play.gain > plain), key=lambda play: -play.gain)
        if late := [play for play in plays if state.waited[play.drafter] >= RETRY]:
            worth = [late[0], *(play for play in worth if play is not late[0])]
        if not worth:
            return Choice(None, beside=self._beside(context, None))
        names = tuple(play.drafter for play in worth)
        return Choice(names[0], worth[0].budget, names[1:], self._beside(context, names[0]))

    def trim(self, state: Run, context: Context, name: str, draft: Draft) -> list[int] | None:
        """The nodes that pay, where the drafter says how sure it is of each."""
        if draft.confidence is None or name not in state.estimates:
            return None
        state.whole[name] = draft
        return worth_scoring(state.estimates[name].chances(draft), state.rate * self.costs)

    def observe(self, state: Run, step: Step) -> None:
        """Learn from all drafts whose length is known by now. A step may be of a router around this one."""
        if state.choosing:
            state.choosing = False
            state.played = (tuple(self._played(state, step)), len(step.committed), len(step.draft))
            for name in state.waited:
                state.waited[name] += 1
            for asked, draft in self._drafts(state, step):
                state.waited[asked.drafter] = 0
                self._note(state, asked, draft)
        for walk in state.drafts.follow(step.committed):
            asked, path = state.asked.pop(walk.arm), walk.draft.path_to(walk.node)
            seen = Seen.of(walk.draft, path, asked.branches, asked.depth, state.estimates[asked.drafter])
            state.estimates[asked.drafter].learn(asked.kind, seen)
            if asked.drafter in state.shared:
                state.shared[asked.drafter].learn(asked.kind, seen)

    def _played(self, state: Run, step: Step) -> dict[str, Draft]:
        """The drafts of those that were asked in turn for one to score, whole; empty ones but for the last."""
        played: dict[str, Draft] = {}
        for name in step.choice.candidates:
            asked = step.draft if name == step.drafter else Draft.empty()
            played[name] = state.whole.get(name, asked)
            if name == step.drafter:
                break
        return played

    def _drafts(self, state: Run, step: Step) -> Iterator[tuple[Asked, Draft]]:
        """All drafts that were made for a step, with what they were to be; a cut by the end of the request counts."""
        played = self._played(state, step)
        looks = {name: draft for name, draft in step.beside.items() if name not in played}
        for name, draft in (*played.items(), *looks.items()):
            budget = step.choice.budget_of(name) if name in played else step.choice.beside[name]
            depth = min(budget.max_depth, state.remaining - 1)
            if depth > 0 and name in state.estimates:
                yield Asked(name, state.kind, budget.max_branches, depth), draft

    def _note(self, state: Run, asked: Asked, draft: Draft) -> None:
        """Wait for the text that it has to be compared with; laws and device memory are let go of."""
        state.asked[state.number] = asked
        state.drafts.add(state.number, draft if draft.q is None else evolve(draft, q=None))
        state.number += 1
        state.asks[asked.drafter] += 1
        if len(draft):
            total, count = state.levels.get(asked.drafter, (0.0, 0))
            state.levels[asked.drafter] = total + float(draft.depths.max()), count + 1

    def _kind(self, state: Run, context: Context) -> int:
        """By how many of the sizes in `matches` are met, and how many of `scores` are reached."""
        state.index.catch_up(context.tokens)
        unmet = (n for n, size in enumerate(self.options.matches) if next(state.index.matches(size), None) is None)
        met, edges = next(unmet, len(self.options.matches)), self.options.edges
        reached = 0 if self.scorer is None else bisect_right(edges, self.scorer.score(context))
        return met * (len(edges) + 1) + reached

    def _book(self, state: Run, draft_seconds: Mapping[str, float]) -> None:
        """What the last step brought and took, now that the seconds of its draft are known."""
        if state.played is None:
            return
        names, tokens, nodes = state.played
        seconds = float(self.costs[min(nodes, len(self.costs) - 1)])
        state.recent.append((tokens, seconds + sum(self._known_seconds(state, name, draft_seconds) for name in names)))
        state.rate = sum(tokens for tokens, _ in state.recent) / sum(seconds for _, seconds in state.recent)
        state.played = None

    def _known_seconds(self, state: Run, name: str, draft_seconds: Mapping[str, float]) -> float:
        """Of a `propose`. The first time one that is not cheap may have read a whole prompt, which says nothing yet."""
        mean = draft_seconds.get(name, 0.0)
        return mean if state.asks[name] > 1 or mean <= CHEAP * self.costs[0] else 0.0

    def _best(self, state: Run, name: str, context: Context) -> Play:
        """The size at which a drafter gains most."""
        estimates = state.estimates[name]
        tokens = 1 + np.cumsum(estimates.survival(state.kind), axis=1)  # (branches, depth)
        nodes = np.minimum(estimates.sizes(state.kind).round().astype(np.int64), self._sizes)
        gains = tokens - state.rate * (self.costs[nodes] + self._draft_seconds(state, name, context))
        place, depth = np.unravel_index(int(gains.argmax()), gains.shape)
        budget = Budget(int(self._sizes[place, depth]), int(depth) + 1, self.options.branches[int(place)])
        return Play(name, float(gains[place, depth]), budget)

    def _draft_seconds(self, state: Run, name: str, context: Context) -> Any:
        """Of a draft, by depth `(depth,)`: a model passes once a level; what is cheap costs the same at any depth."""
        mean = self._known_seconds(state, name, context.draft_seconds)
        total, count = state.levels.get(name, (0.0, 0))
        if mean <= CHEAP * self.costs[0] or not count:
            return mean
        return mean * np.arange(1, self.options.budget.max_depth + 1) / (total / count)

    def _beside(self, context: Context, played: str | None) -> dict[str, Budget]:
        """Drafters to look at besides the one that plays: those that are known to be cheap."""
        limit = CHEAP * self.costs[0]
        return {
            name: self.options.budget
            for name in self.options.drafters
            if name != played and context.draft_seconds.get(name, np.inf) <= limit
        }


__all__ = ["CostAware"]
