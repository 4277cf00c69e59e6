"""A language in which copies and accidents are known: the probe tells them apart, and so pays. A small model learns it.

Texts are random tokens. After a marker a stretch of 8 to 30 earlier tokens is repeated; without one, five earlier
tokens are, and then the text goes another way. So every accident looks like a copy to whoever counts tokens.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from transformers import LlamaConfig, LlamaForCausalLM

from draftmux.routers.linear_probe.fitting import best_threshold, fit
from draftmux.routers.linear_probe.labels import hits, repeated
from draftmux.routers.replays import Copying, steps

MARKER, SIZE, LENGTH, SHIFT = 0, 48, 160, 1
LABEL, MATCH = 8, 5
COPYING = Copying(MATCH, 1, 10)
STEPS, BATCH = 700, 24
pytestmark = pytest.mark.slow


def text(rng: random.Random) -> list[int]:
    """One text; copies and accidents come in any order."""
    ids = [rng.randrange(1, SIZE) for _ in range(40)]
    while len(ids) < LENGTH:
        span = rng.randint(8, 30) if rng.random() < 0.5 else MATCH
        start = rng.randrange(len(ids) - span)
        stretch = ids[start : start + span]
        if span == MATCH:
            others = [token for token in range(1, SIZE) if token != ids[start + span]]
            ids += [*stretch, rng.choice(others)]
        elif MARKER not in stretch:
            ids += [MARKER, *stretch]
        ids += [rng.randrange(1, SIZE) for _ in range(rng.randint(2, 8))]
    return ids[:LENGTH]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
    )
    model, rng = LlamaForCausalLM(config), random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS)
    for _ in range(STEPS):
        ids = torch.tensor([text(rng) for _ in range(BATCH)])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


def states(model: Any, texts: list[list[int]]) -> list[torch.Tensor]:
    """Of the middle layer, `(LENGTH, d)` a text."""
    with torch.inference_mode():
        return list(model(input_ids=torch.tensor(texts), output_hidden_states=True).hidden_states[2])


def judged(texts: list[list[int]], scores: list[Any]) -> float:
    """Area under the curve among places where five tokens occurred before."""
    met = [(scores[i], hit) for i, ids in enumerate(texts) for hit in hits(ids, COPYING, 40, ended=False)]
    found = [(own[hit.root - 1], hit.is_copy) for own, hit in met]
    assert sum(not copy for _, copy in found) >= 200, "there must be enough accidents to speak of"
    return float(roc_auc_score([copy for _, copy in found], [score for score, _ in found]))


def seconds(texts: list[list[int]], scores: list[Any], threshold: float) -> float:
    """For all texts, where a row costs a tenth of a pass."""
    total = 0.0
    for ids, own in zip(texts, scores, strict=True):
        taken = steps(ids, 40, COPYING, partial(is_open, own >= threshold))
        total += sum(1 + 0.1 * len(draft) for _, draft, _, _ in taken)
    return total


def is_open(gate: Any, root: int) -> bool:
    """By the state before the root."""
    return bool(gate[root - 1])


def test_a_probe_tells_copies_from_accidents(model: Any) -> None:
    rng = random.Random(2)
    learn, test = [text(rng) for _ in range(150)], [text(rng) for _ in range(60)]
    seen = torch.cat([each[:-SHIFT] for each in states(model, learn)])
    labels = torch.from_numpy(np.concatenate([repeated(ids, LABEL)[SHIFT:] for ids in learn]))
    unseen = states(model, test)
    weight = fit(seen, labels[:, None], [1e-3])[0][:, 0]
    scores = [(each @ weight).sigmoid().numpy() for each in unseen]
    assert judged(test, scores) >= 0.95
    threshold = best_threshold((seen @ weight).sigmoid().double().numpy(), labels.numpy())
    assert seconds(test, scores, threshold) < 0.97 * seconds(test, scores, 0.0)
    shuffled = torch.stack([labels[rng.sample(range(len(labels)), len(labels))] for _ in range(16)], 1)
    [blind] = fit(seen, shuffled, [1e-3])
    areas = [judged(test, [(each @ weight).sigmoid().numpy() for each in unseen]) for weight in blind.t()]
    assert 0.35 < np.mean(areas) < 0.65
