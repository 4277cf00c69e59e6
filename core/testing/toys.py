"""Toy laws of a target and of a draft over a few tokens, small enough to enumerate. Knows nothing of decoding.

They depend on the whole prefix, so that nothing comes out right by looking at its last token only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from draftmux.backends.scripted import Law
    from draftmux.testing.sampled import DraftLaw

String = tuple[int, ...]


@frozen(eq=False)
class Toy:
    """A target's logits `p` and a draft law `q`, both by prefix, over few tokens."""

    p: Law
    q: DraftLaw
    vocab_size: int = 3
    eos_ids: frozenset[int] = frozenset()
    prompt: String = (0, 1)


def random_toy(seed: int, vocab_size: int = 3, zeros: float = 0.0, eos_ids: frozenset[int] = frozenset()) -> Toy:
    """Random p and q; a share `zeros` of their entries is 0, never all of a law."""
    return Toy(_logits(_weights(seed, vocab_size, zeros)), _weights(seed + 1, vocab_size, zeros), vocab_size, eos_ids)


def equal_toy(seed: int, vocab_size: int = 3) -> Toy:
    """q is p."""
    law = _weights(seed, vocab_size, 0.3)
    return Toy(_logits(law), law, vocab_size)


def disjoint_toy(seed: int, vocab_size: int = 4) -> Toy:
    """No token has both p and q."""
    law, even = _weights(seed, vocab_size, 0.0), [token % 2 for token in range(vocab_size)]
    return Toy(
        _logits(_masked(law, even)), _masked(_weights(seed + 1, vocab_size, 0.0), [1 - m for m in even]), vocab_size
    )


def point_toy(seed: int, vocab_size: int = 3, *, p: bool = False, q: bool = False) -> Toy:
    """p, q or both put everything on one token."""
    sides = []
    for number, point in enumerate((p, q)):
        law = _weights(seed + number, vocab_size, 0.0)
        sides.append(_pointed(law) if point else law)
    return Toy(_logits(sides[0]), sides[1], vocab_size)


def trapping_toy(seed: int, trap: int = 2, way_out: int = 0, vocab_size: int = 3) -> Toy:
    """After `trap` the target gives only `way_out`: where that is banned, nothing can follow."""
    law, only = _weights(seed, vocab_size, 0.0), [int(token == way_out) for token in range(vocab_size)]
    trapped = _masked(law, only)
    return Toy(
        _logits(lambda prefix: (trapped if prefix[-1] == trap else law)(prefix)),
        _weights(seed + 1, vocab_size, 0.0),
        vocab_size,
    )


def _weights(seed: int, vocab_size: int, zeros: float) -> DraftLaw:
    @cache
    def law(prefix: String) -> tuple[float, ...]:
        rng = np.random.default_rng((seed, *prefix))
        weights = rng.integers(1, 10, vocab_size) * (rng.random(vocab_size) >= zeros)
        weights[rng.integers(vocab_size)] += 1
        return tuple((weights / weights.sum()).tolist())

    return law


def _masked(law: DraftLaw, mask: Sequence[int]) -> DraftLaw:
    def masked(prefix: String) -> tuple[float, ...]:
        weights = np.array(law(prefix)) * mask
        return tuple((weights / weights.sum()).tolist())

    return masked


def _pointed(law: DraftLaw) -> DraftLaw:
    def pointed(prefix: String) -> tuple[float, ...]:
        weights = law(prefix)
        return tuple(float(token == int(np.argmax(weights))) for token in range(len(weights)))

    return pointed


def _logits(law: DraftLaw) -> Law:
    @cache
    def logits(prefix: String) -> tuple[float, ...]:
        return tuple(math.log(share) if share > 0 else -math.inf for share in law(prefix))

    return logits


TOYS: dict[str, Toy] = {
    "random": random_toy(18),
    "random, 4 tokens": random_toy(30, 4),
    "a third is 0": random_toy(12, zeros=0.3),
    "a third is 0, 4 tokens": random_toy(14, 4, zeros=0.3),
    "p is q": equal_toy(8),
    "disjoint": disjoint_toy(10),
    "one-hot p": point_toy(12, p=True),
    "one-hot q": point_toy(14, q=True),
    "ends": random_toy(26, eos_ids=frozenset({2})),
}
