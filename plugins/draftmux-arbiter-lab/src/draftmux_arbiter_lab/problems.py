"""Problems in several steps whose every step can be checked: digit strings, words, and units in short texts.

A problem is a start and some operations; its solution writes one line a step, and the result after `####`. Which
operations a model has met how often is all that makes it good at some and poor at others: no answer is planted, all
solutions that are learned from are right.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

LENGTH = 4  # of digit strings and words
FAMILIES = ("digits", "words", "units")
Weights = Mapping[str, float]


@frozen
class Problem:
    """`question` and `solution` as a model sees them, `reference` the result, and the names of the operations."""

    family: str
    question: str
    solution: str
    reference: str
    operations: tuple[str, ...]

    @property
    def row(self) -> dict[str, str]:
        """As `draftmux train arbiter` reads it."""
        return {"prompt": self.question, "reference": self.reference, "family": self.family}


@frozen
class Operation:
    """One kind of step: how its argument is drawn, what it makes of a state, and for which family it is."""

    name: str
    families: tuple[str, ...]
    argument: Callable[[random.Random, str], str]
    apply: Callable[[str, str], str]

    def written(self, argument: str) -> str:
        """As questions and solutions write it."""
        return f"{self.name}{argument}"


def _add(state: str, argument: str) -> str:
    return f"{(int(state) + int(argument)) % 10**LENGTH:0{LENGTH}d}"


def _up(state: str, argument: str) -> str:
    """Every digit by so much, without carry."""
    return "".join(str((int(digit) + int(argument)) % 10) for digit in state)


def _swap(state: str, argument: str) -> str:
    return state.translate(str.maketrans(argument, argument[::-1]))


def _next(state: str, argument: str) -> str:
    letters = string.ascii_lowercase
    return state.translate(str.maketrans(letters, letters[1:] + letters[:1]))


def _two_of(rng: random.Random, state: str) -> str:
    letters = string.digits if state.isdigit() else string.ascii_lowercase
    first = rng.choice(state)
    return first + rng.choice([letter for letter in letters if letter != first])


OPERATIONS = (
    Operation("+", ("digits",), lambda rng, state: f"{rng.randrange(11, 100)}", _add),
    Operation("up", ("digits",), lambda rng, state: f"{rng.randrange(1, 10)}", _up),
    Operation("rev", ("digits", "words"), lambda rng, state: "", lambda state, _: state[::-1]),
    Operation(
        "rot",
        ("digits", "words"),
        lambda rng, state: f"{rng.randrange(1, LENGTH)}",
        lambda s, a: s[int(a) :] + s[: int(a)],
    ),
    Operation("sort", ("digits", "words"), lambda rng, state: "", lambda state, _: "".join(sorted(state))),
    Operation("swap", ("digits", "words"), _two_of, _swap),
    Operation("next", ("words",), lambda rng, state: "", _next),
)
UNITS = {  # one of the former is so many of the latter
    ("km", "m"): 1000,
    ("m", "cm"): 100,
    ("cm", "mm"): 10,
    ("week", "day"): 7,
    ("day", "h"): 24,
    ("h", "min"): 60,
    ("min", "s"): 60,
    ("box", "pack"): 12,
    ("pack", "pen"): 8,
}
STEPS = (2, 4)  # of a problem, from the first number to the second
THINGS = ("rope", "trip", "road", "film", "walk", "order", "plan", "line")


def problem(rng: random.Random, family: str, weights: Weights, steps: tuple[int, int] = STEPS) -> Problem:
    """One problem of a family, with so many steps."""
    count = rng.randint(*steps)
    return _units(rng, weights, count) if family == "units" else _strings(rng, family, weights, count)


def _strings(rng: random.Random, family: str, weights: Weights, count: int) -> Problem:
    letters = string.digits if family == "digits" else string.ascii_lowercase
    start = state = "".join(rng.choice(letters) for _ in range(LENGTH))
    known = [operation for operation in OPERATIONS if family in operation.families]
    chosen = rng.choices(known, [weights.get(operation.name, 0.0) for operation in known], k=count)
    asked, lines = [], []
    for operation in chosen:
        step = operation.written(operation.argument(rng, state))
        after = operation.apply(state, step.removeprefix(operation.name))
        asked.append(step)
        lines.append(f"{step}={after}")
        state = after
    return _made(family, f"{start} {' '.join(asked)}", lines, state, [operation.name for operation in chosen])


def _units(rng: random.Random, weights: Weights, count: int) -> Problem:
    """A quantity that is converted down a chain of units, and grows by something on the way."""
    chains = [["km", "m", "cm", "mm"], ["week", "day", "h", "min", "s"], ["box", "pack", "pen"]]
    chain = rng.choice(chains)
    at = rng.randrange(len(chain) - 1)
    start = amount = rng.randrange(2, 30)
    asked, lines, names = [], [], []
    for _ in range(count):
        more = rng.choices(["unit", "more"], [weights.get("unit", 1.0), weights.get("more", 1.0)])[0]
        if more == "unit" and at + 1 < len(chain) and amount < 10_000:
            pair = chain[at], chain[at + 1]
            after = amount * UNITS[pair]
            asked.append(f"in {pair[1]}")
            lines.append(f"{amount}*{UNITS[pair]}={after}")
            at += 1
            names.append("unit")
        else:
            extra = rng.randrange(2, 90)
            after = amount + extra
            asked.append(f"{extra} {chain[at]} more")
            lines.append(f"{amount}+{extra}={after}")
            names.append("more")
        amount = after
    begin = chain[at - names.count("unit")]
    question = f"a {rng.choice(THINGS)} of {start} {begin}, {', '.join(asked)}"
    return _made("units", question, lines, str(amount), names)


def _made(family: str, question: str, lines: Sequence[str], result: str, names: Sequence[str]) -> Problem:
    return Problem(family, question, "\n".join([*lines, f"#### {result}"]), result, tuple(names))


# How often each model meets an operation. The target is poor at rearranging strings, the draft at sums.
EVEN = dict.fromkeys(("+", "up", "rev", "rot", "sort", "swap", "next", "unit", "more"), 1.0)
TARGET = EVEN | {"rev": 0.08, "rot": 0.08, "sort": 0.05}
DRAFT = EVEN | {"+": 0.1, "up": 0.1, "unit": 0.1, "swap": 0.1}


def problems(
    count: int,
    seed: int,
    weights: Weights = EVEN,
    families: Sequence[str] = FAMILIES,
    steps: tuple[int, int] = STEPS,
) -> list[Problem]:
    """Problems of all families in turn, the same for the same seed."""
    rng = random.Random(f"arbiter-lab {seed}")
    return [problem(rng, families[number % len(families)], weights, steps) for number in range(count)]
