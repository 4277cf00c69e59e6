"""Seconds of a step's stages, and counts of one request's steps.

Acceptance is counted as the verifier decided it, before stopping cuts the end.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from draftmux.types import Step

STAGES = ("route", "propose", "score", "accept", "commit", "observe")


class Clock:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Book the time since the last lap under `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now


def _sum(one: Any, two: Any) -> Any:
    """Sum of numbers or counters; unlike Counter's own, it keeps zeros: a drafter that never drafted must show."""
    if not isinstance(one, Counter):
        return one + two
    total = Counter(one)
    total.update(two)
    return total


@define
class Metrics:
    """Sums over the steps of one request; add them up to speak of many."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    prefill_seconds: float = 0.0
    seconds: Counter[str] = field(factory=Counter)
    steps_by_drafter: Counter[str] = field(factory=Counter)
    accepted_by_drafter: Counter[str] = field(factory=Counter)
    asked_by_drafter: Counter[str] = field(factory=Counter)
    seconds_by_drafter: Counter[str] = field(factory=Counter)
    opened_by_drafter: Counter[str] = field(factory=Counter)  # first `propose`s, which may read a whole prompt
    opening_seconds: Counter[str] = field(factory=Counter)
    tried_at_depth: Counter[int] = field(factory=Counter)
    accepted_at_depth: Counter[int] = field(factory=Counter)
    faults: Counter[str] = field(factory=Counter)
    router: Counter[str] = field(factory=Counter)  # numbers that the router has reported
    verifier: Counter[str] = field(factory=Counter)  # and the verifier

    def record(self, step: Step, sharers: int = 1) -> None:
        """Count one step; its seconds are shared by the `sharers` sequences that stepped together."""
        self.steps += 1
        self.drafted += len(step.draft)
        self.accepted += len(step.acceptance.path)
        for stage, seconds in step.seconds.items():
            self.seconds[stage] += seconds / sharers  # type: ignore[assignment]
        if step.drafter is not None:
            self.steps_by_drafter[step.drafter] += 1
            for node in step.acceptance.path:
                self.accepted_by_drafter[step.draft.source(node, step.drafter)] += 1
        if len(step.draft):
            self.tried_at_depth.update(range(1, int(step.draft.depths.max()) + 1))
            self.accepted_at_depth.update(range(1, len(step.acceptance.path) + 1))

    def record_proposal(self, drafter: str, seconds: float) -> None:
        """Count one `propose`, whether a draft came of it or not; `seconds` are this sequence's share of the call."""
        if not self.asked_by_drafter[drafter]:
            self.opened_by_drafter[drafter] += 1
            self.opening_seconds[drafter] += seconds  # type: ignore[assignment]
        self.asked_by_drafter[drafter] += 1
        self.seconds_by_drafter[drafter] += seconds  # type: ignore[assignment]

    @property
    def draft_seconds(self) -> dict[str, float]:
        """Mean seconds of a `propose`, by drafter that was asked. First ones count only until there is another."""
        found = {}
        for name, count in self.asked_by_drafter.items():
            later = count - self.opened_by_drafter[name]
            seconds = self.seconds_by_drafter[name] - (self.opening_seconds[name] if later else 0.0)
            found[name] = seconds / (later or count)
        return found

    def __add__(self, other: Metrics) -> Metrics:
        total = Metrics()
        for name in self.__slots__:
            if not name.startswith("_"):
                setattr(total, name, _sum(getattr(self, name), getattr(other, name)))
        return total

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens committed per target pass: accepted drafts plus one, prefill excluded."""
        return 1 + self.accepted / self.steps if self.steps else 0.0

    @property
    def acceptance_by_position(self) -> list[float]:
        """Share of drafts reaching depth i that were accepted there, for i = 1, 2, …"""
        return [self.accepted_at_depth[depth] / self.tried_at_depth[depth] for depth in sorted(self.tried_at_depth)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "steps": self.steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "mean_acceptance_length": self.mean_acceptance_length,
            "acceptance_by_position": self.acceptance_by_position,
            "prefill_seconds": self.prefill_seconds,
            "seconds": dict(self.seconds),
            "steps_by_drafter": dict(self.steps_by_drafter),
            "accepted_by_drafter": dict(self.accepted_by_drafter),
            "asked_by_drafter": dict(self.asked_by_drafter),
            "seconds_by_drafter": dict(self.seconds_by_drafter),
            "faults": dict(self.faults),
            "router": dict(self.router),
            "verifier": dict(self.verifier),
        }
