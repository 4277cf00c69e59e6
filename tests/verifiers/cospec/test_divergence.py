"""The divergence arbiter: its numbers by hand, and what it says of a draft model that is the target, or is not."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from draftmux.generation import Generation
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import tiny_model
from draftmux.verifiers.cospec.divergence import DivergenceArbiter
from draftmux.verifiers.cospec.laws_apart import Divergence, likeness


def test_likeness_by_hand() -> None:
    p, q = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.25, 0.5, 0.25]])
    middle = (p + q) / 2
    apart = sum(float((law * (law / middle).log()).sum()) for law in (p, q)) / 2
    assert float(likeness(p.log(), q.log())) == pytest.approx(1 - apart / math.log(2), abs=1e-6)
    assert float(likeness(p.log(), p.log())) == pytest.approx(1)
    one, other = torch.tensor([[0.0, -math.inf]]), torch.tensor([[-math.inf, 0.0]])
    assert float(likeness(one, other)) == pytest.approx(0)


def test_laws_of_the_draft_are_those_of_a_forward(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = pair()
    scores, seen = Divergence.scores, []

    def noted(self: Divergence, blocks: Any) -> Any:
        found = scores(self, blocks)
        for block, row in zip(blocks, found, strict=True):
            ids = (*block.request.context.tokens.tolist(), *block.drafted[:-1])
            seen.append((ids, block.request.scores.logits[: len(row)].clone(), row))
        return found

    monkeypatch.setattr(Divergence, "scores", noted)
    verifier = DivergenceArbiter(draft="draft", threshold=0.6).bind(ours.resources)
    asks = [Ask((1, i, 3), Generation(max_new_tokens=30, ignore_eos=True), f"r{i}") for i in range(2)]
    found = serve(assemble(ours.target, {"draft": ours.drafter}, verifier=verifier), asks, 2)
    assert len(seen) > 5 and found["r0"].finished.metrics.verifier["decisions"] > 0
    model = ours.drafter.reader.target.model
    for ids, p, row in seen:
        with torch.no_grad():
            q = copy.deepcopy(model)(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -len(row) :]
        assert np.allclose(likeness(p, q), row, atol=1e-6)


def test_a_draft_model_that_is_the_target_is_always_kept(pair: Any) -> None:
    ours = pair()
    twin = copy.deepcopy(tiny_model("llama")).double()
    ours.drafter.reader.target.model.load_state_dict(twin.state_dict())
    verifier = DivergenceArbiter(draft="draft", threshold=0.999).bind(ours.resources)
    ask = Ask((1, 2, 3), Generation(max_new_tokens=40, ignore_eos=True), "r")
    warm = evolve(ask, generation=evolve(ask.generation, temperature=1.0))
    found = serve(assemble(ours.target, {"draft": ours.drafter}, verifier=verifier), [warm])["r"].finished
    told = found.metrics.verifier
    assert told["kept"] == told["decisions"] > 0
