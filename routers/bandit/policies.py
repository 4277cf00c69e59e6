"""Which arm next: rules that know arms by number, and what each of their plays brought. Nothing of drafts or tokens.

Rewards are positive and of any size; rules that need them in [0, 1] divide by the largest one so far.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field, frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

PRIOR_MEAN, PRIOR_COUNT = 0.5, 1.0  # what Thompson sampling believes of an arm beforehand: so much, so many plays
STALE = 0.3  # plays that fading has left of an arm, below which it is as good as unknown
SPREAD = 0.25  # of rewards around their mean, for it


@define(eq=False)
class Tally:
    """Plays and rewards of `arms` arms. Each new play lets all earlier ones count `keep` times as much."""

    arms: int
    keep: float = 1.0
    counts: NDArray[np.float64] = field(init=False)
    sums: NDArray[np.float64] = field(init=False)
    largest: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.counts, self.sums = np.zeros(self.arms), np.zeros(self.arms)

    def add(self, arm: int, reward: float) -> float:
        """A play; its reward over the largest one so far."""
        self.fade()
        return self.count(arm, reward)

    def fade(self) -> None:
        """One round later."""
        self.counts *= self.keep
        self.sums *= self.keep

    def count(self, arm: int, reward: float) -> float:
        """A reward of this round, which counts as none if it is no positive number; over the largest one so far."""
        reward = reward if np.isfinite(reward) and reward > 0 else 0.0
        self.counts[arm] += 1
        self.sums[arm] += reward
        self.largest = max(self.largest, reward)
        return reward / self.largest if self.largest else 0.0

    def start_from(self, other: Tally, weight: float) -> None:
        """Believe beforehand what another tally has seen, as `weight` plays of each arm it knows."""
        known = other.counts > STALE
        self.counts[known] = weight
        self.sums[known] = weight * other.sums[known] / other.counts[known]
        self.largest = other.largest

    @property
    def means(self) -> NDArray[np.float64]:
        """Mean reward by arm over the largest one, `(arms,)`; 0 for arms that were never played."""
        played = np.maximum(self.counts, 1e-12)
        means: NDArray[np.float64] = self.sums / played / (self.largest or 1.0)
        return means


@frozen
class Pick:
    """An arm to play, and how likely it was to be picked."""

    arm: int
    chance: float = 1.0


@define(eq=False)
class Policy(ABC):
    """A rule. Each arm is played `warm_up` times, in turn, before it decides."""

    tally: Tally
    warm_up: int
    rng: np.random.Generator
    plays: NDArray[np.int64] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plays = np.zeros(self.tally.arms, dtype=np.int64)

    def pick(self) -> Pick:
        """The arm to play now."""
        least = int(self.plays.argmin())
        found = Pick(least) if self.plays[least] < self.warm_up else self.decide()
        self.plays[found.arm] += 1
        return found

    @abstractmethod
    def decide(self) -> Pick:
        """The arm that the rule prefers."""

    def learn(self, pick: Pick, reward: float) -> None:
        """What a play brought."""
        self.tally.add(pick.arm, reward)

    def start_from(self, other: Policy, weight: float) -> None:
        """Believe beforehand what another run of the rule has seen, as `weight` plays of each arm it knows."""
        self.tally.start_from(other.tally, weight)
        self.plays = np.where(self.tally.counts > STALE, self.warm_up, 0)


@define(eq=False)
class Ucb(Policy):
    """UCB1 (Auer et al., 2002): `mean + width * sqrt(2 ln t / n)`, n the arm's own plays. With fading, its discounted
    form (Garivier and Moulines, 2008): t is the sum of all n."""

    width: float = 0.5

    def decide(self) -> Pick:
        """The highest bound; of equal ones, the first."""
        return Pick(int(self.bounds().argmax()))

    def bounds(self) -> NDArray[np.float64]:
        """Upper confidence bounds, `(arms,)`; infinite for arms that were never played."""
        counts = self.tally.counts
        total = max(float(counts.sum()), 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            bonus = np.where(counts > 0, self.width * np.sqrt(2 * np.log(total) / counts), np.inf)
        bounds: NDArray[np.float64] = self.tally.means + bonus
        return bounds


@define(eq=False)
class Exp3(Policy):
    """EXP3 (Auer et al., 2002), for rewards that an adversary may choose. `gamma` of the plays are drawn evenly."""

    gamma: float = 0.1
    logs: NDArray[np.float64] = field(init=False)  # of the weights; the largest is 0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.logs = np.zeros(self.tally.arms)

    def decide(self) -> Pick:
        """One draw."""
        law = self.law()
        arm = int(self.rng.choice(self.tally.arms, p=law))
        return Pick(arm, float(law[arm]))

    def law(self) -> NDArray[np.float64]:
        """Chance of every arm, `(arms,)`."""
        weights = np.exp(self.logs - self.logs.max())
        law = (1 - self.gamma) * weights / weights.sum() + self.gamma / self.tally.arms
        whole: NDArray[np.float64] = law / law.sum()
        return whole

    def learn(self, pick: Pick, reward: float) -> None:
        """Weigh the reward by how unlikely the play was when it was drawn."""
        scaled = self.tally.add(pick.arm, reward)
        self.logs[pick.arm] += self.gamma * scaled / (pick.chance * self.tally.arms)
        self.logs -= self.logs.max()

    def start_from(self, other: Policy, weight: float) -> None:
        """The other's weights, as far apart as so many plays of each arm could have brought them."""
        super().start_from(other, weight)
        if isinstance(other, Exp3):
            self.logs = np.maximum(other.logs, -self.gamma * weight)


@define(eq=False)
class Thompson(Policy):
    """Thompson sampling with Gaussian beliefs: the arm that is best in a draw from what is believed of each."""

    def decide(self) -> Pick:
        """One draw an arm."""
        counts = self.tally.counts
        means = (PRIOR_COUNT * PRIOR_MEAN + counts * self.tally.means) / (PRIOR_COUNT + counts)
        drawn = means + SPREAD / np.sqrt(PRIOR_COUNT + counts) * self.rng.standard_normal(len(means))
        return Pick(int(drawn.argmax()))


@define(eq=False)
class Leader(Policy):
    """Follow the leader: the best mean. For rewards of all arms in every round, played or not (2510.20064). An arm that
    nothing was heard of for long is played once more."""

    def decide(self) -> Pick:
        """Arms of which nothing is known any more come first, then the best; of equal ones, the first."""
        return Pick(int(np.where(self.tally.counts > STALE, self.tally.means, np.inf).argmax()))
