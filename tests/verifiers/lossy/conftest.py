"""Steps made by hand: a draft, the target's law after each of its nodes, and what a verifier makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from attrs import frozen

from draftmux.arrays import frozen_view
from draftmux.generation import Generation
from draftmux.sampling import RuleContext, Sampler, SamplingRule
from draftmux.types import Acceptance, Context, Draft, Scores

Law = Sequence[float]


@frozen
class Made:
    """A step: `laws[i + 1]` is the target's law after node i, `laws[0]` after the root, token 0 of the prompt."""

    draft: Draft
    laws: Sequence[Law]
    generation: Generation = Generation(temperature=1.0)

    @property
    def context(self) -> Context:
        tokens = frozen_view(np.zeros(1, dtype=np.int64))
        return Context("request", tokens, 1, 99, {}, (), self.generation)

    @property
    def scores(self) -> Scores:
        logits = [[math.log(p) if p else -math.inf for p in law] for law in self.laws]
        return Scores(torch.tensor(logits, dtype=torch.float64))

    @property
    def sampler(self) -> Sampler:
        rule = SamplingRule.build(self.generation, RuleContext(len(self.laws[0]), 1, frozenset()))
        return rule.at(self.context, self.draft, self.scores)

    def judged_by(self, verifier: Any) -> Acceptance:
        return verifier.accept(self.context, self.draft, self.scores, self.sampler)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def made() -> type[Made]:
    return Made


@pytest.fixture(scope="session")
def chain_over() -> Callable[..., Made]:
    """A chain of tokens, and for each the law at its place (the last law is the one after the chain)."""

    def build(tokens: Sequence[int], laws: Sequence[Law], **generation: Any) -> Made:
        return Made(Draft.chain(tokens), laws, Generation(**{"temperature": 1.0, **generation}))

    return build
