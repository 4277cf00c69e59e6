"""The router that learns which of some drafters, and how much of it, commits most tokens a second."""

from __future__ import annotations

import math
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import astuple, define, field, frozen

from draftmux.counterfactual import Counterfactuals
from draftmux.options import option
from draftmux.pruning import within
from draftmux.routers.bandit.policies import Exp3, Leader, Pick, Policy, Tally, Thompson, Ucb
from draftmux.routing import BaseRouter
from draftmux.tree import ROOT
from draftmux.types import AUTO, Budget, Choice, Context, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from draftmux.protocols import Drafter, Resources, Router
    from draftmux.types import Step

CHEAP = 0.01  # of a plain step: a draft that takes less may be made to be looked at alone
WARM = 5.0  # plays that a fresh request believes to have seen, with `memory: start`


@frozen
class Arm:
    """One thing to play: a drafter and its budget, or plain decoding."""

    drafter: str | None = option("name of the drafter; null decodes plainly", default=None)
    budget: Budget = option("what its draft may hold at most", default=Budget())


@frozen
class Bandit(BaseRouter):
    """Plays arms by what earlier plays brought (BanditSpec, 2505.15141).

    A reward is the tokens of a step over its seconds, those of a target pass of so many rows and of the drafter's
    `propose`, both as measured. `full-information` also rates the drafts of cheap arms that were not played, by the
    tokens that came (2510.20064).
    """

    arms: list[Arm] = option("what to choose from, two to eight")
    policy: str = option("the rule", default="ucb", choices=("ucb", "exp3", "thompson", "full-information"))
    reward: str = option("tokens per second, or tokens per step", default="speed", choices=("speed", "length"))
    memory: str = option(
        "request: each begins anew; start: with the averages so far; process: all requests are one run",
        default="request",
        choices=("request", "start", "process"),
    )
    warm_up: int = option("plays of every arm before the rule decides", default=1, minimum=0, maximum=100)
    keep: float = option(
        "what a play counts one play later, for texts that change", default=0.98, minimum=0.5, maximum=1
    )
    width: float = option("ucb: of the bonus for arms that were seldom played", default=0.5, minimum=0)
    gamma: float = option("exp3: share of plays that are drawn evenly", default=0.1, minimum=0.001, maximum=1)
    seed: int = option("of drawn plays", default=0, minimum=0)

    def __attrs_post_init__(self) -> None:
        if not 2 <= len(self.arms) <= 8:
            raise ValueError(f"'arms' must be two to eight, there is nothing to learn from one: {len(self.arms)}")
        if len({repr(arm) if arm.drafter else "plain" for arm in self.arms}) < len(self.arms):
            raise ValueError("'arms' holds one arm twice; give each a drafter or a budget of its own")

    def uses(self) -> tuple[str, ...]:
        """The drafters of the arms."""
        return tuple(dict.fromkeys(arm.drafter for arm in self.arms if arm.drafter is not None))

    def bind(self, resources: Resources) -> Router:
        """Learn what passes cost; measured now, should nobody have done so before."""
        if resources.backend is None:
            return BoundBandit(self, lambda nodes: 1.0)
        resources.backend.cost(0)
        return BoundBandit(self, cache(resources.backend.cost))

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Only when bound."""
        raise NotImplementedError("bind this router first")

    def policy_for(self, context: Context | None = None) -> Policy:
        """A rule that knows nothing yet. What it draws depends on the request's name, its prompt and the seed alone."""
        names = () if context is None else (context.request_id.encode(), context.tokens.tobytes())
        rng = np.random.default_rng([self.seed, *map(zlib.crc32, names)])
        tally = Tally(len(self.arms), self.keep)
        if self.policy == "ucb":
            return Ucb(tally, self.warm_up, rng, self.width)
        if self.policy == "exp3":
            return Exp3(tally, self.warm_up, rng, self.gamma)
        return (Thompson if self.policy == "thompson" else Leader)(tally, self.warm_up, rng)


@define(eq=False)
class Play:
    """A step that was chosen and not yet rated: what was picked, and once it is through, its tokens and its draft's
    nodes and levels."""

    pick: Pick
    tokens: int = 0
    nodes: int = 0
    levels: int = 0

    @classmethod
    def of(cls, pick: Pick, tokens: int, draft: Draft) -> Play:
        """Through."""
        return cls(pick, tokens, len(draft), int(draft.depths.max(initial=0)))


@define(eq=False)
class Run:
    """The router's state for one sequence."""

    policy: Policy
    shared: Policy | None = None  # learns the same, for requests to come
    play: Play | None = None
    unscored: Counterfactuals = field(factory=Counterfactuals)
    known: list[Play] = field(factory=list)  # of drafts beside, waiting to be rated
    levels: dict[str, tuple[float, int]] = field(factory=dict)  # of each drafter's drafts: their sum and number
    plays: list[int] = field(init=False)  # of every arm
    spent: tuple[int, float] = (0, 0.0)  # tokens and seconds of all plays
    rated: NDArray[np.float64] = field(init=False)  # (arms, 2): tokens and seconds of each arm, played or not

    def __attrs_post_init__(self) -> None:
        arms = self.policy.tally.arms
        self.plays, self.rated = [0] * arms, np.zeros((arms, 2))


@define(eq=False)
class BoundBandit(BaseRouter):
    """A bandit that knows what a pass over the root and so many nodes costs, in seconds."""

    options: Bandit
    cost: Callable[[int], float]
    shared: Policy = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.shared = self.options.policy_for()

    def uses(self) -> tuple[str, ...]:
        """As the options say."""
        return self.options.uses()

    def begin(self, context: Context) -> Run:
        """A run of its own, or the one that all share."""
        memory = self.options.memory if context.generation.greedy else "request"
        if memory == "process":
            return Run(self.shared)
        policy = self.options.policy_for(context)
        if memory == "start":
            policy.start_from(self.shared, WARM)
        return Run(policy, self.shared if memory == "start" else None)

    def choose(self, state: Run, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Rate the last play, now that the seconds of its draft are known, and pick the next."""
        self._rate(state, context.draft_seconds)
        pick = state.policy.pick()
        state.play = Play(pick)
        arm = self.options.arms[pick.arm]
        return Choice(arm.drafter, arm.budget, beside=self._beside(arm, context.draft_seconds))

    def observe(self, state: Run, step: Step) -> None:
        """Keep what the play brought; it is rated at the next choice. A step may be of a router around this one."""
        own = state.play is not None and not state.play.tokens
        if state.play is not None and own:
            state.play = Play.of(state.play.pick, len(step.committed), step.draft)
            for name, draft in (*step.beside.items(), (self.options.arms[state.play.pick.arm].drafter, step.draft)):
                if name is not None:
                    total, count = state.levels.get(name, (0.0, 0))
                    state.levels[name] = total + float(draft.depths.max(initial=0)), count + 1
        if self.options.policy == "full-information" and own:
            for number, draft in self._others(state, step):
                state.unscored.add(number, draft)
        for walk in state.unscored.follow(step.committed):
            state.known.append(Play.of(Pick(walk.arm), walk.depth + 1, walk.draft))

    def report(self, state: Run) -> dict[str, float]:
        """Plays by arm, and how many seconds the best of the arms would have saved, had it been played throughout.

        The best is judged by this request alone, so that where all are equal the regret is above 0 by chance.
        """
        found: dict[str, float] = {
            f"plays of {self.name(number)}": float(count) for number, count in enumerate(state.plays)
        }
        tokens, seconds = state.spent
        known = state.rated[state.rated[:, 1] > 0]
        best = float((known[:, 0] / known[:, 1]).max(initial=0.0))
        return found | ({"seconds": seconds, "regret, seconds": seconds - tokens / best} if best else {})

    def name(self, number: int) -> str:
        """An arm, for people."""
        arm = self.options.arms[number]
        sizes = {"nodes": arm.budget.max_nodes, "levels": arm.budget.max_depth, "branches": arm.budget.max_branches}
        told = ((what, "auto" if size == AUTO else str(size)) for what, size in sizes.items() if size <= AUTO)
        limits = ", ".join(f"{size} {what}" for what, size in told)
        return (arm.drafter or "plain steps") + (f" ({limits})" if limits else "")

    def _others(self, state: Run, step: Step) -> Iterator[tuple[int, Draft]]:
        """What each arm that was not played would have drafted, where that is known."""
        for number, arm in enumerate(self.options.arms):
            if state.play is not None and state.play.pick.arm == number:
                continue
            draft = self._draft_of(arm, step)
            if draft is not None:
                yield number, within(draft, arm.budget)

    def _draft_of(self, arm: Arm, step: Step) -> Draft | None:
        """What the arm's drafter has drafted here, if that is at least what the arm would let it."""
        if arm.drafter is None:
            return Draft.empty()
        if arm.drafter in step.choice.candidates and step.drafter in (None, arm.drafter):
            given = step.choice.budget_of(arm.drafter)
            cut = len(step.draft) and uses_up(step.draft, given)
            return None if cut and arm.budget != arm.budget.within(given) else step.draft
        return step.beside.get(arm.drafter)

    def _rate(self, state: Run, draft_seconds: Mapping[str, float]) -> None:
        """Tell the policy what plays have brought whose drafts' seconds are known by now."""
        played = state.play if state.play is not None and state.play.tokens else None
        for play in (*([] if played is None else [played]), *state.known):
            seconds = self._seconds(state, play, draft_seconds)
            reward = play.tokens / (seconds if self.options.reward == "speed" else 1.0)
            state.rated[play.pick.arm] += play.tokens, seconds
            for policy in (state.policy, *([] if state.shared is None else [state.shared])):
                if play is played:
                    policy.learn(play.pick, reward)
                else:
                    policy.tally.count(play.pick.arm, reward)
            if play is played:
                state.spent = state.spent[0] + play.tokens, state.spent[1] + seconds
                state.plays[play.pick.arm] += 1
        state.play, state.known = None, []

    def _seconds(self, state: Run, play: Play, draft_seconds: Mapping[str, float]) -> float:
        """Of a pass and a draft of that size."""
        drafter = self.options.arms[play.pick.arm].drafter or ""
        drafting = draft_seconds.get(drafter, 0.0)
        if drafting > CHEAP * self.cost(0):
            total, count = state.levels.get(drafter, (0.0, 0))
            # A model passes once a level; the first time it may have read a whole prompt, which says nothing yet.
            drafting *= play.levels / (total / count) if count > 1 and play.levels and total else count > 1
        return self.cost(play.nodes) + drafting

    def _beside(self, played: Arm, draft_seconds: Mapping[str, float]) -> dict[str, Budget]:
        """Drafters to look at besides the one that plays: those that are known to be cheap."""
        if self.options.policy != "full-information":
            return {}
        limit = CHEAP * self.cost(0)
        budgets: dict[str, Budget] = {}
        for arm in self.options.arms:
            if arm.drafter is not None and draft_seconds.get(arm.drafter, math.inf) <= limit:
                known = budgets.get(arm.drafter, Budget(0, 0, 0))
                budgets[arm.drafter] = Budget(*map(max, astuple(known), astuple(arm.budget)))
        return {name: budget for name, budget in budgets.items() if name != played.drafter}


def uses_up(draft: Draft, budget: Budget) -> bool:
    """Whether a draft may have been cut by its budget."""
    leaves = len(draft) - len(draft.siblings.keys() - {ROOT})
    return (
        len(draft) >= budget.max_nodes
        or int(draft.depths.max(initial=0)) >= budget.max_depth
        or leaves >= budget.max_branches
    )
