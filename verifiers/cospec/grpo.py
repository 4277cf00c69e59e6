"""Rollouts of stage 2 and what is learned from them: group-relative advantages (2402.03300) of CoSpec's reward."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from attrs import frozen

from draftmux.verifiers.cospec.network import Batch
from draftmux.verifiers.cospec.policy import Decisions, log_probability, weights
from draftmux.verifiers.cospec.problems import formed, solves
from draftmux.verifiers.cospec.reward import Rollout, advantages
from draftmux.verifiers.cospec.rollouts import Course, roll_out, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.arbitration import BoundArbitration
    from draftmux.verifiers.cospec.mining import Rig
    from draftmux.verifiers.cospec.network import Network, Sample
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.recipe import ArbiterRecipe
    from draftmux.verifiers.cospec.reward import Reward

SURE = 1e-6  # how near to 0 and 1 a chance counts


@frozen(eq=False)
class Scored:
    """One rollout: its course, whether it was right, what it earned and its advantage; tokens, and target passes."""

    problem: Problem
    course: Course
    right: bool
    reward: float
    advantage: float
    tokens: int
    passes: int


@frozen
class Group:
    """How rollouts are made and valued: `size` of each problem. `scaled`: advantages of groups with right and wrong
    ones, by sign; `idle`: whether decisions without effect are drawn too."""

    size: int
    reward: Reward
    scaled: bool = True
    idle: bool = False

    @classmethod
    def of(cls, recipe: ArbiterRecipe, reward: Reward) -> Group:
        """As a recipe says."""
        return cls(recipe.group, reward, recipe.advantage == "mixed_scaled", recipe.credit == "all")

    def play(
        self, rig: Rig, problems: Sequence[Problem], task: Task, arbitration: BoundArbitration, seed: int
    ) -> list[Scored]:
        """`size` rollouts of every problem, by problem."""
        parts, watched = watching(rig.parts, arbitration, explore=True, idle=self.idle)
        names = {problem.key: [f"{problem.key}/{number}" for number in range(self.size)] for problem in problems}
        asks = [
            rig.ask(name, problem, seed=random.Random(f"{seed} {name}").getrandbits(32))  # no two draw the same numbers
            for problem in problems
            for name in names[problem.key]
        ]
        results = roll_out(parts, rig.tokenizer, asks, rig.batch)
        scored = []
        for problem in problems:
            own = names[problem.key]
            courses = [watched.courses[name] for name in own]
            answers = [rig.text(results[name].tokens) for name in own]
            right = [solves(task, answer, problem) for answer in answers]
            shaped = [not self.reward.malformed or formed(task, answer) for answer in answers]
            earned = [self.reward.of(valued(*each)) for each in zip(courses, right, shaped, strict=True)]
            gains = advantages(earned, right, self.scaled).tolist()
            for i, name in enumerate(own):
                result = results[name]
                scored.append(
                    Scored(problem, courses[i], right[i], earned[i], gains[i], len(result.tokens), result.metrics.steps)
                )
        return scored


def teaching(
    play: Callable[[Sequence[Problem]], list[Scored]],
    problems: Sequence[Problem],
    others: Sequence[Problem],
    size: int,
    times: int,
) -> tuple[list[Scored], list[Scored]]:
    """Rollouts of problems in groups of `size`: as they were drawn, and to learn from. A group that teaches nothing,
    since no rollout of it has an advantage, gives its place to that of another problem, up to so many times (DAPO,
    2503.14476).
    """
    drawn = play(problems)
    groups, left = [drawn[at : at + size] for at in range(0, len(drawn), size)], list(others)
    for _ in range(times):
        idle = [at for at, group in enumerate(groups) if not any(scored.advantage for scored in group)]
        new, left = left[: len(idle)], left[len(idle) :]
        if not new:
            break
        found = play(new)
        for at, begin in zip(idle, range(0, len(found), size), strict=False):
            groups[at] = found[begin : begin + size]
    return drawn, [scored for group in groups for scored in group]


def valued(course: Course, right: bool, shaped: bool) -> Rollout:
    """What is rewarded of a course."""
    return Rollout(right, course.blocks, course.kept_logprobs, course.decisions, course.refused, shaped)


@frozen(eq=False)
class Decided:
    """One block with its decisions, how likely the policy was to keep each, and the advantage and weight of each."""

    sample: Sample
    places: tuple[int, ...]
    kept: tuple[bool, ...]
    chances: tuple[float, ...]
    advantage: float
    weight: float


def decided(rollouts: Sequence[Scored], mean: str) -> list[Decided]:
    """All decisions of a step's rollouts; rollouts without any have no term."""
    counts = [learned_from(scored) for scored in rollouts]
    return [
        Decided(
            block.sample,
            (*block.places, *block.idle),
            (*block.kept, *(kept for kept, _ in block.idle.values())),
            (*block.chances, *(chance for _, chance in block.idle.values())),
            scored.advantage,
            weight,
        )
        for scored, weight in zip(rollouts, weights(counts, mean), strict=True)
        for block in scored.course.consulted
        if block.places
    ]


def learned_from(scored: Scored) -> int:
    """How many decisions of a rollout have a term."""
    return scored.course.decisions + sum(len(block.idle) for block in scored.course.consulted)


@frozen(eq=False)
class Minibatch:
    """Blocks, the places `(n,)` of their decisions in `(B, K)` laid flat, and the decisions."""

    blocks: Batch
    flat: Tensor
    decisions: Decisions

    def logits(self, network: Network) -> Tensor:
        """`(n,)`."""
        found: Tensor = network(self.blocks)
        return found.flatten()[self.flat]


def minibatches(
    blocks: Sequence[Decided], reference: Network, layout: tuple[int, int], rows: int, heat: float
) -> Iterator[Minibatch]:
    """All blocks, `rows` at once, with log-probabilities of the policy that decided, and logits of the reference.

    `layout`: window and separator.
    """
    device = reference.backbone.device
    order = sorted(blocks, key=lambda block: block.sample.size)
    for at in range(0, len(order), rows):
        part = order[at : at + rows]
        batch = Batch.of([block.sample for block in part], *layout).to(device)
        width = batch.rows.shape[1]
        places = [i * width + place for i, block in enumerate(part) for place in block.places]
        flat = torch.tensor(places, device=device)
        kept = torch.tensor([done for block in part for done in block.kept], device=device)
        chances = torch.tensor([chance for block in part for chance in block.chances], device=device)
        gains, shares = (
            torch.tensor([getattr(block, name) for block in part for _ in block.places], device=device)
            for name in ("advantage", "weight")
        )
        with torch.no_grad():
            logits = reference(batch).flatten()[flat]
        behaviour = log_probability(heat * chances.logit(SURE), kept, heat)
        yield Minibatch(batch, flat, Decisions(kept, behaviour, logits, gains, shares))
