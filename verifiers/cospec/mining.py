"""Labels for the warm-up without a judge: both branches of a mismatch are decoded to their end and checked.

Exact greedy speculative decoding gives the mismatches, and with it the branch of the target's token: it is what plain
decoding says. For the other branch the drafted token is put in its place and the target goes on alone.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from draftmux.prompts import encode
from draftmux.verifiers.cospec.rollouts import Ask, roll_out, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from draftmux.engine.step import Parts
    from draftmux.generation import Generation
    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.arbitration import BoundArbitration
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
    """What decodes: parts with one drafter, and how requests are decoded, greedily, up to `batch` at once."""

    parts: Parts
    tokenizer: Any
    generation: Generation
    batch: int

    def ask(self, name: str, problem: Problem, **changes: Any) -> Ask:
        """A request for one problem."""
        ids = encode([dict(message) for message in problem.prompt.messages], self.tokenizer, self.generation)
        return Ask(name, tuple(ids), evolve(self.generation, **changes))

    def text(self, tokens: Sequence[int]) -> str:
        """Of an answer."""
        return str(self.tokenizer.decode([token for token in tokens if token not in self.parts.backend.eos_ids]))


@frozen(eq=False)
class Branch:
    """A mismatch whose draft branch is to be decoded: the text up to the drafted token, and how many may follow."""

    problem: Problem
    sample: Sample
    place: int
    ids: tuple[int, ...]
    room: int


def mine(
    rig: Rig, problems: Sequence[Problem], task: Task, refusing: BoundArbitration, choice: Choice
) -> list[Mismatch]:
    """Labelled mismatches, some of every problem. `refusing` keeps no mismatch."""
    parts, watched = watching(rig.parts, refusing)
    asks = {problem.key: rig.ask(problem.key, problem) for problem in problems}
    plain = roll_out(parts, rig.tokenizer, list(asks.values()), rig.batch)
    branches: dict[str, Branch] = {}
    for problem in problems:
        for number, consulted in enumerate(choice.of(problem.key, watched.courses[problem.key].consulted)):
            ids = (*consulted.sample.context.tolist(), *consulted.sample.drafted[: consulted.places[0] + 1])
            room = rig.generation.max_new_tokens - (len(ids) - len(asks[problem.key].tokens))
            branches[f"{problem.key}/{number}"] = Branch(problem, consulted.sample, consulted.places[0], ids, room)
    wholes = _ended(rig, parts, branches)
    rows = []
    for name, branch in branches.items():
        key, reference = branch.problem.key, branch.problem.reference
        answer = wholes[name][len(asks[key].tokens) :]
        right = tuple(task.solved(rig.text(tokens), reference) for tokens in (answer, plain[key].tokens))
        rows.append(Mismatch(key, branch.sample, branch.place, LABELS[right], right))  # type: ignore[index,arg-type]
    return rows


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


def judged(rows: Sequence[Mismatch], judge: Callable[[Mismatch], float]) -> list[Mismatch]:
    """The same with labels of a judge, which scores the draft's token from 0 to 10."""
    return [evolve(row, label=min(1.0, max(0.0, judge(row) / 10)), right=None) for row in rows]
