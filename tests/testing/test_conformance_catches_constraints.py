"""Planted bad constraints, one for each check of the kit: proof that the check can fail."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import pytest
from attrs import define, evolve, field

from draftmux.testing import ConformanceError, ConformanceWarning, Setting, check_constraint
from draftmux.testing.conformance.kit import CONSTRAINT
from draftmux.testing.constraints import Automaton
from draftmux.testing.targets import hash_law, scripted


@define(eq=False)
class State:
    """Right: two thirds of all tokens may follow, others at every place; the text may end at every fourth."""

    size: int
    ends: list[int]
    at: int = 0

    def allowed(self) -> Any:
        mask = (np.arange(self.size) + self.at) % 3 > 0
        mask[self.ends] = self.at == 3
        return mask

    def advance(self, token: int) -> Any:
        return evolve(self, at=(self.at + 1) % 4) if self.allowed()[token] else None


class Good:
    """Keeps every rule; the bad ones below break one each."""

    state: ClassVar[Any] = State

    def begin(self, vocabulary: Any) -> Any:
        return self.state(vocabulary.size, sorted(vocabulary.end_ids))


class NoBegin:
    pass


class BeginsWithAMask(Good):
    def begin(self, vocabulary: Any) -> Any:
        return super().begin(vocabulary).allowed()


class Integers(State):
    def allowed(self) -> Any:
        return super().allowed().astype(np.int64)


class KnowsOnlyTexts(State):
    """As many entries as there are texts, however many ids the target has."""

    def allowed(self) -> Any:
        return super().allowed()[:298]


class BackToFront(State):
    def allowed(self) -> Any:
        return super().allowed()[::-1].copy()[::-1]


class LetsEverythingPass(State):
    def advance(self, token: int) -> Any:
        return evolve(self, at=(self.at + 1) % 4)


class TakesBack(State):
    def advance(self, token: int) -> Any:
        return super().advance(token) if token % 2 else None


class Stuck(State):
    def allowed(self) -> Any:
        return super().allowed() & (self.at != 2)


class MovesItself(State):
    def advance(self, token: int) -> Any:
        if not self.allowed()[token]:
            return None
        self.at = (self.at + 1) % 4
        return self


@define(eq=False)
class CountsRequests(Good):
    requests: Any = field(factory=itertools.count)

    def begin(self, vocabulary: Any) -> Any:
        return State(vocabulary.size, sorted(vocabulary.end_ids), next(self.requests) % 4)


@define(eq=False)
class CountsRefusals(State):
    """Drafts that are tried and refused change what may follow."""

    refused: list[int] = field(factory=list)

    def allowed(self) -> Any:
        return np.roll(super().allowed(), len(self.refused) % 3)

    def advance(self, token: int) -> Any:
        ahead = super().advance(token)
        if ahead is None:
            self.refused.append(token)
        return ahead


def of(state: Any) -> Any:
    """A constraint with these states."""
    return type(state.__name__, (Good,), {"state": state})()


BAD: list[tuple[str, Any, str]] = [
    ("protocol", NoBegin(), "lacks begin"),
    ("protocol", BeginsWithAMask(), "ndarray, which lacks allowed, advance"),
    ("masks", of(Integers), "dtype int64"),
    ("masks", of(KnowsOnlyTexts), "shape (298,)"),
    ("masks", of(BackToFront), "not contiguous"),
    ("moves-fit-masks", of(TakesBack), "says True of token"),
    ("never-stuck", of(Stuck), "allows nothing"),
    ("states-never-change", of(MovesItself), "once the state was advanced"),
    ("begins-anew", CountsRequests(), "begun again"),
    ("constrained-identity", of(CountsRefusals), "should be"),
]


def named(value: Any) -> str:
    return "" if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("check", "plugin", "said"), BAD, ids=named)
def test_a_bad_constraint_is_caught(check: str, plugin: Any, said: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_constraint(plugin, only=[check])
    assert f"[{check}]" in str(caught.value) and said in str(caught.value)


def test_drafts_that_are_scored_for_nothing_are_said() -> None:
    with pytest.warns(ConformanceWarning, match="says False of token .* advance gave a state"):
        check_constraint(of(LetsEverythingPass), only=["moves-fit-masks"])


@pytest.mark.parametrize("plugin", [Good(), Automaton(2)], ids=named)
def test_good_constraints_pass(plugin: Any) -> None:
    assert {finding.outcome for finding in check_constraint(plugin).findings} == {"passed"}


def test_a_constraint_can_be_checked_with_the_target_it_is_for() -> None:
    setting = Setting(target=lambda taps: scripted(hash_law(2, 9), 9, eos_ids={4}))
    assert check_constraint(Automaton(1), setting=setting).failed == []


def test_every_check_of_a_constraint_can_fail() -> None:
    assert {check for check, _, _ in BAD} == set(CONSTRAINT.all)
