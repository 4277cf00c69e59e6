"""A language in which copies and accidents are known, and states that know it: the probe tells them apart, and so pays.

Texts are random tokens. Copies repeat 10 to 30 earlier tokens; accidents repeat five, and then the text goes another
way, so that every one of them looks like a copy to whoever counts tokens. A state holds, somewhere among much noise,
whether the text copies, as a model's would that means to; what the probe learns from are the tokens alone.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from draftmux.routers.linear_probe.fitting import best_threshold, fit
from draftmux.routers.linear_probe.labels import hits, repeated
from draftmux.routers.replays import Copying, steps

SIZE, LENGTH, WIDTH, PROMPT = 60, 200, 48, 40
LABEL, MATCH, SHIFT = 8, 5, 1
COPYING = Copying(MATCH, 4, 10)


def text(rng: random.Random) -> tuple[list[int], list[bool]]:
    """One text, and for each of its tokens whether it is copied; copies and accidents come in any order."""
    ids = [rng.randrange(SIZE) for _ in range(PROMPT)]
    meant = [False] * PROMPT
    while len(ids) < LENGTH:
        copy = rng.random() < 0.5
        span = rng.randint(10, 30) if copy else MATCH
        start = rng.randrange(len(ids) - span)
        tail = [] if copy else [rng.choice([token for token in range(SIZE) if token != ids[start + span]])]
        tail += [rng.randrange(SIZE) for _ in range(rng.randint(2, 8))]
        ids += [*ids[start : start + span], *tail]
        meant += [copy] * span + [False] * len(tail)
    return ids[:LENGTH], meant[:LENGTH]


@pytest.fixture
def states() -> Any:
    """What makes the states `(LENGTH, WIDTH)` of a text: that of a position knows whether the next token is copied."""
    rng = np.random.default_rng(0)
    direction, others = rng.normal(size=WIDTH), rng.normal(size=(SIZE, WIDTH))

    def made(ids: list[int], meant: list[bool]) -> torch.Tensor:
        intent = np.array([*meant[SHIFT:], False]) - 0.5
        noise = rng.normal(scale=2.0, size=(LENGTH, WIDTH))
        return torch.tensor(intent[:, None] * 2 * direction + others[ids] + noise)

    return made


def judged(texts: list[list[int]], scores: list[Any]) -> float:
    """Area under the curve among places where a run of five tokens is complete that occurred before.

    Only the first place of a longer run counts: nobody can tell where a copy ends.
    """
    met = []
    for own, ids in zip(scores, texts, strict=True):
        found = hits(ids, COPYING, PROMPT, ended=False)
        roots = {hit.root for hit in found}
        met += [(own[hit.root - 1], hit.is_copy) for hit in found if hit.root - 1 not in roots]
    assert sum(not copy for _, copy in met) >= 200, "there must be enough accidents to speak of"
    return float(roc_auc_score([copy for _, copy in met], [score for score, _ in met]))


def seconds(texts: list[list[int]], scores: list[Any], threshold: float) -> float:
    """For all texts, where a row costs a tenth of a pass."""
    total = 0.0
    for ids, own in zip(texts, scores, strict=True):
        taken = steps(ids, PROMPT, COPYING, partial(is_open, own >= threshold))
        total += sum(1 + 0.1 * len(draft) for _, draft, _, _ in taken)
    return total


def is_open(gate: Any, root: int) -> bool:
    """By the state before the root."""
    return bool(gate[root - 1])


def test_a_probe_tells_copies_from_accidents(states: Any) -> None:
    rng = random.Random(2)
    learn, test = [text(rng) for _ in range(150)], [text(rng) for _ in range(80)]
    ids = [own for own, _ in test]
    seen = torch.cat([states(*each)[:-SHIFT] for each in learn])
    labels = torch.from_numpy(np.concatenate([repeated(own, LABEL)[SHIFT:] for own, _ in learn]))
    unseen = [states(*each) for each in test]
    [weight] = fit(seen, labels[:, None], [1e-3])
    scores = [(each @ weight[:, 0]).sigmoid().numpy() for each in unseen]
    assert judged(ids, scores) >= 0.95
    threshold = best_threshold((seen @ weight[:, 0]).sigmoid().numpy(), labels.numpy())
    assert seconds(ids, scores, threshold) < 0.97 * seconds(ids, scores, 0.0)


def test_a_probe_of_coins_does_not(states: Any) -> None:
    """On average over throws; a single one points somewhere."""
    rng = random.Random(3)
    learn, test = [text(rng) for _ in range(60)], [text(rng) for _ in range(80)]
    seen = torch.cat([states(*each)[:-SHIFT] for each in learn])
    coins = torch.rand(len(seen), 64, generator=torch.Generator().manual_seed(1)) < 0.5
    [blind] = fit(seen, coins, [1e-3])
    unseen = [states(*each) for each in test]
    areas = [judged([own for own, _ in test], [(each @ w).numpy() for each in unseen]) for w in blind.t()]
    assert 0.45 < np.mean(areas) < 0.55
