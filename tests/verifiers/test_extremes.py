"""A law q that all but rules its token out, before a target that does rule it out: 0/0 accepts nothing."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from attrs import frozen

from draftmux.backends.scripted import ScriptedTarget
from draftmux.drafting import SequenceDrafter
from draftmux.generation import Generation
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law
from draftmux.types import Draft, Emits, Scores
from draftmux.verifiers.block import Block
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

SIZE, BANNED, TINY = 6, 4, 1e-50


class Single(ScriptedTarget):
    """The scripted target in float32, in which 1e-50 is 0."""

    def _score(self, row: Any) -> Scores:
        return Scores(super()._score(row).logits.float())


@frozen
class Insistent(SequenceDrafter):
    """Drafts the banned token again and again, at a probability that vanishes in float32."""

    emits: ClassVar[Emits] = Emits(q=True)

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        size = min(3, budget.max_nodes, budget.max_depth)
        q = torch.full((size, SIZE), (1 - TINY) / (SIZE - 1), dtype=torch.float64)
        q[:, BANNED] = TINY
        return Draft.chain([BANNED] * size, q)


@pytest.mark.parametrize("verifier", [Rejection(), Block(), Traversal()])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_banned_token_never_stands(verifier: Any, temperature: float) -> None:
    target = Single(hash_law(1, SIZE), SIZE)
    bans = {"bad_word_ids": [[BANNED]], "logit_bias": {BANNED: -1e30}}
    for seed in range(5):
        ask = Ask((1,), Generation(max_new_tokens=9, temperature=temperature, seed=seed, **bans))
        found = serve(assemble(target, {"d": Insistent()}, verifier=verifier), [ask])["request"].finished.tokens
        assert BANNED not in found
        if not temperature:
            assert found == serve(assemble(target), [ask])["request"].finished.tokens
