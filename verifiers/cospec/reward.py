"""What a rollout earned, and how much better that is than the other rollouts of its prompt (CoSpec).

Right rollouts earn more the further drafts were accepted beyond their first mismatch. Wrong ones lose for tokens kept
that the target finds very unlikely, and for refusals, so that refusing is no safe default. The constants that the paper
does not name, and the bounds, are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from draftmux.options import option

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_DEVIATION = 1e-6


@frozen
class Reach:
    """How far one drafted block with a mismatch got: `matched` tokens before the first one, `accepted` in all, of
    `drafted`."""

    matched: int
    accepted: int
    drafted: int


@frozen
class Rollout:
    """What is rewarded of one decoding. `right`: whether the task was solved; `blocks`: those with a mismatch;
    `kept_logprobs`: the target's unprocessed log p of every mismatch that was kept; `decisions` that the arbiter made,
    `refused` of them; `formed`: whether the answer has the form that its task asks for."""

    right: bool
    blocks: Sequence[Reach]
    kept_logprobs: Sequence[float]
    decisions: int
    refused: int
    formed: bool = True


@frozen
class Reward:
    """The constants. A right rollout earns within [right, right + span], a wrong one within [-risk - refusal, 0], or
    `malformed` if that is less and its answer lacks the asked form."""

    right: float = option(
        "earned by a right rollout; 0 is the paper's literal reading", default=1.0, minimum=0, maximum=1e3
    )
    span: float = option("earned besides by one whose every mismatch was kept", default=1.0, minimum=0, maximum=1e3)
    risk: float = option("lost by a wrong one whose kept tokens are all risk", default=0.5, minimum=0, maximum=1e3)
    unlikely: float = option(
        "target's probability below which a kept token is a risk; at its square it is all risk",
        default=1e-3,
        minimum=5e-5,
        maximum=0.99,
    )
    refusal: float = option("lost by a wrong one that refused every mismatch", default=0.5, minimum=0, maximum=1e3)
    malformed: float = option(
        "earned at most by a wrong one whose answer has not the form that the task asks for",
        default=0.0,
        minimum=-1e3,
        maximum=0,
    )

    def of(self, rollout: Rollout) -> float:
        """R of one rollout."""
        if rollout.right:
            return self.right + self.span * span(rollout.blocks)
        lost = -self.risk * self.risk_of(rollout.kept_logprobs) - self.refusal * refused_share(rollout)
        return lost if rollout.formed else min(lost, self.malformed)

    def risk_of(self, logprobs: Sequence[float]) -> float:
        """Mean over kept mismatches of how far their log p lies below that of `unlikely`, relative to it, 0 to 1.

        A token of probability `unlikely` is the first to cost anything; one of its square costs all.
        """
        floor = math.log(self.unlikely)
        each = [min(1.0, max(0.0, (floor - logprob) / -floor)) for logprob in logprobs]
        return sum(each) / len(each) if each else 0.0


def span(blocks: Sequence[Reach]) -> float:
    """Accepted tokens from the first mismatch on, of those that were drafted there (rho_r); matched ones are free."""
    drafted = sum(block.drafted - block.matched for block in blocks)
    return sum(max(0, block.accepted - block.matched) for block in blocks) / drafted if drafted else 0.0


def refused_share(rollout: Rollout) -> float:
    """Refusals among the arbiter's decisions."""
    return rollout.refused / rollout.decisions if rollout.decisions else 0.0


def advantages(
    rewards: Sequence[float], right: Sequence[bool], scaled: bool = True, least: float = 0.1
) -> NDArray[np.float64]:
    """`(G,)`, of one prompt's rollouts.

    Where some are right and some wrong, `scaled` shares one mass among the right ones and the same, negative, among the
    wrong ones, by |R| and `least` at least; then the mean square is 1. So a right rollout is never held against the
    policy, which centring (`scaled=False`, and wherever all are alike) can do to one with a short span.
    """
    earned, solved = np.asarray(rewards, dtype=np.float64), np.asarray(right, dtype=bool)
    if not scaled or solved.all() or not solved.any():
        deviation = float(earned.std())
        return (
            np.zeros_like(earned)
            if deviation < LEAST_DEVIATION
            else (earned - earned.mean()) / (deviation + LEAST_DEVIATION)
        )
    weight = np.maximum(np.abs(earned), least)
    shares = np.where(solved, weight / weight[solved].sum(), -weight / weight[~solved].sum())
    return shares / np.sqrt(np.mean(shares**2))  # type: ignore[no-any-return]
