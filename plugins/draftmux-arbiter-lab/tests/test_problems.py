"""Every step of every solution is right, worked out anew; problems are the same for a seed, and mixtures are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from draftmux_arbiter_lab.problems import DRAFT, EVEN, FAMILIES, LENGTH, TARGET, UNITS, Problem, problems


def by_hand(step: str, state: str) -> str:
    name = next(name for name in ("+", "up", "rev", "sort", "rot", "swap", "next") if step.startswith(name))
    argument = step.removeprefix(name)
    places = range(LENGTH)
    if name == "swap":
        one, two = argument
        return "".join({one: two, two: one}.get(letter, letter) for letter in state)
    if name == "+":
        return str((int(state) + int(argument)) % 10**LENGTH).rjust(LENGTH, "0")
    letters: dict[str, Callable[[], Iterable[str]]] = {
        "up": lambda: ("0123456789"[(int(digit) + int(argument)) % 10] for digit in state),
        "rev": lambda: reversed(state),
        "sort": lambda: sorted(state),
        "rot": lambda: (state[(i + int(argument)) % LENGTH] for i in places),
        "next": lambda: (chr((ord(letter) - 96) % 26 + 97) for letter in state),
    }
    return "".join(letters[name]())


def check(problem: Problem) -> None:
    *lines, last = problem.solution.split("\n")
    assert last == f"#### {problem.reference}" and len(lines) == len(problem.operations)
    if problem.family == "units":
        amount = None
        for line in lines:
            sum_, _, result = line.partition("=")
            one, sign, two = sum_.partition("*" if "*" in sum_ else "+")
            assert amount in (None, int(one))
            amount = int(one) * int(two) if sign == "*" else int(one) + int(two)
            assert amount == int(result)
            assert sign == "+" or int(two) in UNITS.values()
        assert str(amount) == problem.reference
        return
    state, *steps = problem.question.split(" ")
    for step, line in zip(steps, lines, strict=True):
        assert line == f"{step}={by_hand(step, state)}"
        state = by_hand(step, state)
    assert state == problem.reference


@pytest.mark.parametrize("weights", [EVEN, TARGET, DRAFT])
def test_solutions_are_right(weights: dict[str, float]) -> None:
    for problem in problems(1500, 7, weights):
        check(problem)


def test_a_seed_gives_the_same_problems_and_another_gives_others() -> None:
    assert problems(30, 1) == problems(30, 1)
    assert not set(problems(300, 1)) & set(problems(300, 2))
    assert {problem.family for problem in problems(30, 1)} == set(FAMILIES)


def test_mixtures_are_kept() -> None:
    seen = {}
    for name, weights in (("target", TARGET), ("draft", DRAFT)):
        seen[name] = Counter(operation for problem in problems(3000, 3, weights) for operation in problem.operations)
    assert 0 < seen["target"]["rev"] < 0.3 * seen["draft"]["rev"]
    assert 0 < seen["draft"]["up"] < 0.3 * seen["target"]["up"]
