"""One decision of a verifier with the engine's own noise, on a toy's laws and a draft that the toy's q gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from draftmux.generation import Generation
from draftmux.sampling import RuleContext, SamplingRule
from draftmux.types import Acceptance, Context, Draft, Scores

if TYPE_CHECKING:
    from draftmux.protocols import Verifier
    from draftmux.testing.toys import Toy

Judge = Callable[..., Acceptance]


@pytest.fixture
def judge() -> Judge:
    def judged(
        verifier: Verifier, toy: Toy, draft: Draft, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> Acceptance:
        generation = Generation(temperature=1.0, seed=seed)
        context = Context("request", np.array(toy.prompt), len(toy.prompt), 99, {}, (), generation)
        paths = [draft.tokens[draft.path_to(node)].tolist() for node in range(-1, len(draft))]
        scores = Scores(torch.tensor([list(toy.p((*toy.prompt, *path))) for path in paths], dtype=dtype))
        rule = SamplingRule.build(generation, RuleContext(toy.vocab_size, len(toy.prompt), frozenset()))
        return verifier.accept(context, draft, scores, rule.at(context, draft, scores))

    return judged
