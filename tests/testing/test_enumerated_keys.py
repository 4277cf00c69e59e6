"""Enumeration keys its numbers as production does: two questions meet the same number there exactly if they do here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from draftmux import sampling
from draftmux.generation import Generation
from draftmux.sampling import RuleContext, Sampler, SamplingRule
from draftmux.testing.chances import Chances, EnumeratedRule
from draftmux.tree import ROOT
from draftmux.types import Context, Draft, Scores

SIZE = 5
LAW = torch.full((SIZE,), 1 / SIZE, dtype=torch.float64)
DRAFT = Draft([1, 2, 3], [ROOT, 0, ROOT])
QUESTIONS: dict[str, Callable[[Sampler], Any]] = {
    **{f"bernoulli({key})": lambda sampler, key=key: sampler.bernoulli(0.5, key) for key in range(3)},
    **{f"draw({key})": lambda sampler, key=key: sampler.draw(LAW, key) for key in range(ROOT, 3)},
    **{f"pick({node})": lambda sampler, node=node: sampler.pick(node) for node in range(ROOT, 3)},
}
PLACES = [(question, length) for question in QUESTIONS for length in (2, 3, 4)]


def sampler(rule: SamplingRule, length: int) -> Sampler:
    context = Context("request", np.arange(length), 2, 99, {}, (), Generation(temperature=1.0))
    return rule.at(context, DRAFT, Scores(torch.zeros(4, SIZE, dtype=torch.float64)))


def rule() -> SamplingRule:
    return SamplingRule.build(Generation(temperature=1.0, seed=7), RuleContext(SIZE, 2, frozenset()))


def in_production(monkeypatch: pytest.MonkeyPatch, question: str, length: int) -> tuple[int, ...]:
    """Seed, position and, for single numbers, index of the noise that is asked for."""
    asked: list[tuple[int, ...]] = []

    def perturbed(logits: torch.Tensor, seed: int, position: int) -> torch.Tensor:
        asked.append((seed, position))
        return logits

    def draw(law: torch.Tensor, seed: int, position: int) -> int:
        asked.append((seed, position))
        return 0

    def uniform(*key: int) -> float:
        asked.append(key)
        return 0.5

    for name, found in (("perturbed", perturbed), ("draw", draw), ("uniform", uniform)):
        monkeypatch.setattr(sampling, name, found)
    QUESTIONS[question](sampler(rule(), length))
    [key] = asked
    return key


def in_enumeration(question: str, length: int) -> Any:
    built, chances = rule(), Chances({})
    own = EnumeratedRule(built.greedy, built.seed, built.processors, built.warpers)
    QUESTIONS[question](sampler(evolve(own, chances=chances), length))
    [key] = chances.intervals
    return key


def test_the_same_questions_meet_the_same_number(monkeypatch: pytest.MonkeyPatch) -> None:
    real = {place: in_production(monkeypatch, *place) for place in PLACES}
    enumerated = {place: in_enumeration(*place) for place in PLACES}
    for one, two in itertools.combinations(PLACES, 2):
        assert (real[one] == real[two]) == (enumerated[one] == enumerated[two]), (one, two)
    assert real["pick(0)", 2] == real["pick(-1)", 3] == (7, 3)  # the target's own noise goes by position


@pytest.mark.parametrize("greedy", [False, True])
def test_enumeration_knows_temperature_0(greedy: bool) -> None:
    built = SamplingRule.build(Generation(temperature=0.0 if greedy else 1.0), RuleContext(SIZE, 2, frozenset()))
    own = EnumeratedRule(built.greedy, built.seed, built.processors, built.warpers)
    found = sampler(own, 2)
    assert found.pick(ROOT) == 0 and float(found.p(ROOT).max()) == (1.0 if greedy else 0.2)
