"""Training-time test: the head unrolled everywhere at once is the head that drafts, chain by chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve, frozen
from torch.testing import assert_close

from draftmux.drafters.eagle3.format import DEFAULT_TAPS
from draftmux.drafters.eagle3.unroll import Batch, unroll
from draftmux.drafters.neural.growth import Sprout, grow
from draftmux.drafters.neural.shape import Shape
from draftmux.generation import Generation
from draftmux.protocols import DraftRequest
from draftmux.types import Budget, Context

TEXTS = ((3, 17, 4, 30, 2, 9, 25, 11, 6, 38, 1, 14, 22, 5, 19, 33, 8, 27, 12, 36), (7, 21, 13, 39, 0, 16, 28))
STEPS = 4
QK_NORMS = {f"layers.0.self_attn.{part}_norm.weight": (8,) for part in "qk"}


@frozen
class Forced:
    """In place of the head's own choice, the next token of a text."""

    text: Sequence[int]

    def children(self, sprout: Sprout, nodes: Sequence[int], logits: Any) -> Any:
        return [[(self.text[len(sprout.request.context.tokens) + sprout.depth(nodes[0])], 0.0, None)]]


def chains(bound: Any, texts: Sequence[Sequence[int]], taps: Sequence[Any]) -> None:
    """Draft along each text from each of its positions, in one batch, from nothing but states of the target."""
    sprouts = []
    for text, states in zip(texts, taps, strict=True):
        for pairs in range(1, len(text)):
            known = {tap: rows[:pairs] for tap, rows in states.items()}
            context = Context("request", np.array(text[: pairs + 1]), 1, 100, known, (), Generation())
            request = DraftRequest(context, bound.begin(context), Budget())
            law: Any = Forced([*text, 0])
            sprouts.append(Sprout(request, law, Shape(STEPS, 1, STEPS, 0.0, "greedy"), min(STEPS, len(text) - pairs)))
    grow(bound, sprouts)


def batched(texts: Sequence[Sequence[int]], taps: Sequence[Any]) -> Batch:
    """All positions of the texts, padded."""
    longest = max(map(len, texts))
    ids = torch.zeros(len(texts), longest, dtype=torch.int64)
    rows = torch.full((len(texts), longest - 1), -1)
    joined = [torch.cat([states[tap] for tap in states], -1) for states in taps]
    states = torch.zeros(len(texts), longest - 1, joined[0].shape[-1], dtype=joined[0].dtype)
    for at, text in enumerate(texts):
        ids[at, : len(text)] = torch.tensor(text)
        rows[at, : len(text) - 1] = torch.arange(len(text) - 1)
        states[at, : len(text) - 1] = joined[at]
    return Batch(ids, states, rows, torch.ones_like(ids, dtype=torch.bool))


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "usual": ({}, {}),
    "norm_before_residual": ({"norm_before_residual": True}, {"norm_before_residual": True}),
    "norm_output": ({"norm_output": True}, {"norm_output": True}),
    "norms of queries, keys and input": ({}, {"more": {**QK_NORMS, "input_norm.weight": (96,)}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_unrolling_equals_chains_from_every_position(
    kind: str, random_plain: Any, write: Any, bind: Any, record: Any, tmp_path: Path
) -> None:
    flags, how = KINDS[kind]
    plain = random_plain(**how)
    config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", **plain.config, **flags}
    config["norm_before_fc"] = "input_norm.weight" in plain.tensors
    target, bound = bind(write(tmp_path, config, plain.tensors), "transformers")
    taps = [target.open(text).taps for text in TEXTS]
    assert tuple(taps[0]) == DEFAULT_TAPS
    chains(bound, TEXTS, taps)
    head = bound.reader.target.model
    with torch.no_grad():
        found = [
            (head.carried(states), head.lm_head(head.norm(states)))
            for states in unroll(head, batched(TEXTS, taps), STEPS)
        ]
    for one in record:
        [number] = [n for n, text in enumerate(TEXTS) if text[: len(one.tokens)] == one.tokens]
        handed, logits = (part[number, len(one.tokens) - 2] for part in found[len(one.path)])
        assert_close(handed, one.handed, rtol=0, atol=1e-9)
        assert_close(logits, one.logits, rtol=0, atol=1e-9)
    assert len(record) == sum(min(STEPS, left) for text in TEXTS for left in range(1, len(text)))


def test_a_row_reads_nothing_behind_it(random_plain: Any, write: Any, bind: Any, tmp_path: Path) -> None:
    """Neither states from its position on, nor tokens after the one that it is given."""
    plain = random_plain()
    target, bound = bind(write(tmp_path, {**plain.config}, plain.tensors), "transformers")
    right = batched(TEXTS[:1], [target.open(TEXTS[0]).taps])
    row, step = 9, 2
    states, ids = right.states.clone(), right.ids.clone()
    states[0, row + 1 :] = 7.0
    ids[0, row + 2 + step :] = 1
    first, second = (
        [*unroll(bound.reader.target.model, evolve(batch, rows=torch.tensor([[row]])), step + 1)][-1]
        for batch in (right, evolve(right, states=states, ids=ids))
    )
    assert torch.equal(first, second)
    ids[0, row + 1 + step] += 1
    [*_, third] = unroll(bound.reader.target.model, evolve(right, rows=torch.tensor([[row]]), ids=ids), step + 1)
    assert not torch.allclose(first, third)
