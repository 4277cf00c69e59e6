"""What a sampling drafter draws for one text under many seeds, and measures of whether two draws go together.

Given all that was drawn before, a draw's place in its law has the mean 1/2 and meets a given token as often as its row
of q says. So sums of such terms over seeds stay near 0, whatever the laws are and whatever decides how much is drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from draftmux.protocols import DraftRequest
from draftmux.testing.conformance.players import BUDGET, copied, room, transcripts
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.types import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from draftmux.testing.conformance.scenes import Transcript
    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Context, Draft

DRAWS = 300
FEW = 40  # draws that are enough to judge them
NODES = 4  # of a draft that are compared with others
ORDINALS = ("first", "second", "third")
FLAT = 1e-6  # all draws are the same token
SURE = 4.7  # standard deviations: one in a million
NEVER = 14.0  # expected events, none of which comes in one of a million cases
TEMPERATURES = (0.7, 0.3)  # the second makes laws that follow it peaked


@frozen(eq=False)
class Courses:
    """The drafts of one text, `drafts[seed][step]`, and the prefixes of the steps."""

    where: str
    seeds: range
    contexts: tuple[Context, ...]
    drafts: list[list[Draft]]


@frozen(eq=False)
class Drawn:
    """A drafted token. `row (V,)` is its law; `place` in (0, 1) is where in it the token lies, by ids."""

    step: int
    node: int
    root: int
    depth: int
    token: int
    row: NDArray[np.float64]
    place: float

    def __str__(self) -> str:
        """Where it was drawn."""
        return f"node {self.node} at the {ORDINALS[self.step]} step"


def needs_q(subject: Subject) -> None:
    """NotApplicableError for drafts that may look at anything."""
    if not subject.plugin.emits.q:
        raise NotApplicableError("emits.q is False: its drafts are point masses, which may look at anything")


def courses(subject: Subject) -> list[Courses]:
    """Drafts of four texts under seeds of their own: several steps of the first, the first step of the others."""
    found: list[Courses] = subject.once("courses", lambda: list(_courses(subject)))
    return found


def _courses(subject: Subject) -> Iterator[Courses]:
    for number, (scene, played) in enumerate(transcripts(subject)[:2]):
        bound = subject.bind(scene.target)
        for turn, transcript in enumerate(played[1:3]):
            budget = Budget(max_nodes=3) if turn else BUDGET
            start = (2 * number + turn) * DRAWS  # noise depends on seed and place alone, and places come again
            seeds = range(start, start + DRAWS)
            steps = _steps(transcript, len(ORDINALS) if number == turn == 0 else 1)
            drafts = [_course(bound, transcript, steps, (seed, TEMPERATURES[turn], budget)) for seed in seeds]
            yield Courses(scene.name, seeds, tuple(transcript.contexts[step] for step in steps), drafts)


def _steps(transcript: Transcript, count: int) -> list[int]:
    """The first steps at which there is room for a draft."""
    return [step for step, context in enumerate(transcript.contexts) if context.remaining > 1][:count]


def _course(bound: Any, transcript: Transcript, steps: list[int], how: tuple[int, float, Budget]) -> list[Draft]:
    """What another request with the same text drafts; its seed and its id are its own."""
    seed, temperature, budget = how

    def own(context: Context) -> Context:
        generation = evolve(context.generation, temperature=temperature, seed=seed)
        return evolve(copied(context), generation=generation, request_id=f"seed-{seed}")

    state, found = bound.begin(own(transcript.contexts[0])), []
    for number, step in enumerate(transcript.steps[: steps[-1] + 1]):
        if number in steps:
            context = own(transcript.contexts[number])
            found += bound.propose([DraftRequest(context, state, room(budget, context))])
        bound.observe(state, step)
    return found


def drawn(course: Courses, drafts: Sequence[Draft]) -> list[Drawn]:
    """The first nodes of the drafts of one seed that were really drawn: no point masses."""
    found = []
    for step, (context, draft) in enumerate(zip(course.contexts, drafts, strict=True)):
        for node, row in enumerate(rows(draft)[:NODES]):
            if row.max() < 1 - FLAT:
                token = int(draft.tokens[node])
                place = float(row[:token].sum() + row[token] / 2)
                depth = int(draft.depths[node])
                found.append(Drawn(step, node, len(context.tokens), depth, token, row, place))
    return found


def rows(draft: Draft) -> Any:
    """q as an array `(N, V)`; nothing for the empty draft."""
    return [] if draft.q is None else np.asarray(draft.q.tolist())


def together(terms: Sequence[float]) -> float:
    """By how many standard deviations the sum of terms of mean 0 is off; 0 when they are too few to tell."""
    squares = np.square(terms)
    if np.count_nonzero(squares > FLAT**2) < FEW:
        return 0.0
    return float(abs(np.sum(terms)) / math.sqrt(squares.sum()))


def too_often(count: float, chances: Sequence[float]) -> bool:
    """Whether so many of events with such chances come in one of a million cases (Freedman's inequality)."""
    expected = sum(chances)
    spread = sum(chance * (1 - chance) for chance in chances)
    return count - expected > math.sqrt(2 * NEVER * spread) + 2 * NEVER / 3
