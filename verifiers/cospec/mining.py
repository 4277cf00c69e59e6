"""Labels for the warm-up. By outcome: both branches of a mismatch are decoded to their end and checked.

Exact greedy speculative decoding gives the mismatches, and with it the branch of the target's token: it is what plain
decoding says. For the other branch the drafted token is put in its place and the target goes on alone. A judge needs
neither branch.
"""

from __future__ import annotations

import random
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from draftmux.prompts import encode
from draftmux.verifiers.cospec.judge import Question, judged
from draftmux.verifiers.cospec.problems import solves
from draftmux.verifiers.cospec.rollouts import Ask, refusing, roll_out, watching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftmux.engine.step import Parts
    from draftmux.generation import Generation
    from draftmux.protocols import Task
    from draftmux.results import Result
    from draftmux.verifiers.cospec.judge import Judge
    from draftmux.verifiers.cospec.network import Sample
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.rollouts import Consulted

LABELS = {(True, True): 0.7, (True, False): 1.0, (False, True): 0.0, (False, False): 0.3}  # draft right, target right


@frozen(eq=False)
class Mismatch:
    """One decision: the block, the place in it, the label (the chance that keeping the draft's token is right), and
    whether the answer was right with the draft's token, and with the target's. `None`: a judge has labelled it."""

    key: str
    sample: Sample
    place: int
    label: float
    right: tuple[bool, bool] | None


@frozen(eq=False)
class Rig:
    """What decodes: parts (to label mismatches, with one drafter), and how, up to `batch` requests at once."""

    parts: Parts
    tokenizer: Any
    generation: Generation
    batch: int

    def ask(self, name: str, problem: Problem, **changes: Any) -> Ask:
        """A request for one problem."""
        ids = encode([dict(message) for message in problem.prompt.messages], self.tokenizer, self.generation)
        return Ask(name, tuple(ids), evolve(self.generation, **changes))

    def fits(self, problem: Problem) -> bool:
        """Whether the target has positions for its prompt and a token more."""
        limit = self.parts.backend.max_length
        return limit is None or len(self.ask("", problem).tokens) < limit

    def text(self, tokens: Sequence[int]) -> str:
        """Of an answer, up to its end."""
        ends = self.generation.end_ids(self.parts.backend.eos_ids)
        return str(self.tokenizer.decode(list(takewhile(lambda token: token not in ends, tokens))))


@frozen(eq=False)
class Branch:
    """A mismatch whose draft branch may be decoded: the ids up to the drafted token, of which so many are the prompt's,
    and how many may follow."""

    problem: Problem
    sample: Sample
    place: int
    ids: tuple[int, ...]
    prompt: int
    room: int


@frozen(eq=False)
class Decoded:
    """Problems decoded exactly: the target's answers by key, and some mismatches of each."""

    answers: Mapping[str, Result]
    branches: Mapping[str, Branch]

    @classmethod
    def of(cls, rig: Rig, problems: Sequence[Problem], choice: Choice) -> Decoded:
        """All of them at once."""
        parts, watched = watching(rig.parts, refusing(rig.parts))
        asks = {problem.key: rig.ask(problem.key, problem) for problem in problems}
        answers = roll_out(parts, rig.tokenizer, list(asks.values()), rig.batch)
        branches: dict[str, Branch] = {}
        for problem in problems:
            prompt = len(asks[problem.key].tokens)
            for number, consulted in enumerate(choice.of(problem.key, watched.courses[problem.key].consulted)):
                sample, place = consulted.sample, consulted.places[0]
                ids = (*sample.context.tolist(), *sample.drafted[: place + 1])
                room = rig.generation.max_new_tokens - (len(ids) - prompt)
                branches[f"{problem.key}/{number}"] = Branch(problem, sample, place, ids, prompt, room)
        return cls(answers, branches)


def by_outcome(rig: Rig, problems: Sequence[Problem], task: Task, choice: Choice) -> list[Mismatch]:
    """Labelled mismatches, some of every problem."""
    decoded = Decoded.of(rig, problems, choice)
    wholes = _ended(rig, watching(rig.parts, refusing(rig.parts))[0], decoded.branches)
    rows = []
    for name, branch in decoded.branches.items():
        key = branch.problem.key
        both = wholes[name][branch.prompt :], decoded.answers[key].tokens
        right = tuple(solves(task, rig.text(tokens), branch.problem) for tokens in both)
        rows.append(Mismatch(key, branch.sample, branch.place, LABELS[right], right))  # type: ignore[index,arg-type]
    return rows


def by_judge(rig: Rig, problems: Sequence[Problem], judge: Judge, choice: Choice) -> list[Mismatch]:
    """The same with labels of a judge."""
    branches = list(Decoded.of(rig, problems, choice).branches.values())
    labels = judged(judge, [_question(rig, branch) for branch in branches])
    return [
        Mismatch(branch.problem.key, branch.sample, branch.place, label, None)
        for branch, label in zip(branches, labels, strict=True)
        if label is not None
    ]


def _question(rig: Rig, branch: Branch) -> Question:
    sample, place = branch.sample, branch.place
    return Question(
        messages=branch.problem.prompt.messages,
        reference=branch.problem.reference,
        so_far=rig.text(branch.ids[branch.prompt : -1]),
        drafted=rig.text(sample.drafted[place:]),
        verified=rig.text(sample.verified[place : place + 1]),
    )


def _ended(rig: Rig, parts: Parts, branches: Mapping[str, Branch]) -> dict[str, tuple[int, ...]]:
    """Every branch decoded to its end, prompt included; the target goes on from the drafted token."""
    ends = rig.parts.backend.eos_ids
    going = {name: each for name, each in branches.items() if each.room > 0 and each.ids[-1] not in ends}
    asks = [Ask(name, each.ids, evolve(rig.generation, max_new_tokens=each.room)) for name, each in going.items()]
    found = roll_out(parts, rig.tokenizer, asks, rig.batch)
    return {name: (*each.ids, *(found[name].tokens if name in found else ())) for name, each in branches.items()}


@frozen
class Choice:
    """At most `each` mismatches of a problem, chosen by chance."""

    each: int
    seed: int

    def of(self, key: str, found: Sequence[Consulted]) -> list[Consulted]:
        """Those of one problem; the same in every run."""
        return random.Random(f"{self.seed} {key}").sample(list(found), min(self.each, len(found)))


def balanced(rows: Sequence[Mismatch], seed: int, most: float = 0.5) -> list[Mismatch]:
    """Rows of which at most that share are right both ways: they are the many, and teach the least."""
    both = [row for row in rows if row.right == (True, True)]
    others = [row for row in rows if row.right != (True, True)]
    room = int(len(others) * most / (1 - most)) if others else len(both)
    kept = random.Random(seed).sample(both, min(room, len(both)))
    return [*others, *kept]
