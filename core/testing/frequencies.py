"""Counts of sampled text: does the whole engine, noise included, write the target's law?

Enumeration (`laws.py`) cannot see the noise itself: that the engine's own numbers are independent shows only in what
they draw. Every token is a sample, since whatever came before, the next one has the target's law.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import torch
from attrs import evolve, frozen

from draftmux.backends.scripted import ScriptedTarget
from draftmux.generation import Generation
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.routers import Watching
from draftmux.testing.sampled import Grown, SampledDrafter, SampledTree
from draftmux.testing.toys import Toy
from draftmux.tree import ROOT
from draftmux.types import Emits

if TYPE_CHECKING:
    from draftmux.protocols import Verifier
    from draftmux.testing.sampled import Noise
    from draftmux.types import Budget, Context, Draft, Step

P = ((0.5, 0.3, 0.2), (0.1, 0.6, 0.3), (0.35, 0.25, 0.4))
Q = ((0.2, 0.2, 0.6), (0.3, 0.4, 0.3), (0.6, 0.2, 0.2))
TOY = Toy(lambda prefix: [math.log(share) for share in P[prefix[-1]]], lambda prefix: Q[prefix[-1]])
TOKENS = 250  # a request; long ones, because opening one costs more than a step
PLAIN = Generation(temperature=1.0)


@frozen(eq=False)
class Played:
    """Texts of many requests (prompt included), and what the router saw of every step: the last token, the step."""

    texts: list[tuple[int, ...]]
    steps: list[tuple[int, Step]]


def play(verifier: Verifier, drafter: SampledDrafter, toy: Toy = TOY, requests: int = 64) -> Played:
    """Requests through the scheduler, each with its own seed."""
    watch = Watching()
    parts = assemble(ScriptedTarget(toy.p, toy.vocab_size), {"drafter": drafter}, watch, verifier=verifier)
    asks = [Ask(toy.prompt, evolve(PLAIN, max_new_tokens=TOKENS, seed=seed), str(seed)) for seed in range(requests)]
    outcomes = serve(parts, asks, max_batch=64).values()
    assert not any(outcome.finished.metrics.faults for outcome in outcomes)
    roots = [int(context.tokens[-1]) for context in watch.contexts]
    return Played(
        [(*toy.prompt, *outcome.finished.tokens) for outcome in outcomes], list(zip(roots, watch.steps, strict=True))
    )


Cells = Counter[tuple[tuple[int, ...], int]]  # (past, next token) -> how often


def pairs(played: Played) -> Cells:
    """Every token, after the two before it."""
    return Counter((text[at - 2 : at], text[at]) for text in played.texts for at in range(2, len(text)))


def first_of_rounds(played: Played) -> Cells:
    """The first token of every round, where a draft can do most harm, after the last one of the round before."""
    return Counter(((last,), step.committed[0]) for last, step in played.steps)


def p_value(cells: Cells) -> float:
    """Of a chi-square test that the next token has the target's law after each past."""
    statistic, pasts = 0.0, {past for past, _ in cells}
    for past in pasts:
        total = sum(cells[past, token] for token in range(3))
        expected = [total * share for share in P[past[-1]]]
        assert min(expected) > 5
        statistic += sum((cells[past, token] - mean) ** 2 / mean for token, mean in enumerate(expected))
    return float(torch.special.gammaincc(_double(len(pasts)), _double(statistic / 2)))  # two degrees a past


def _double(number: float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.float64)


CHAIN, TREE = SampledTree(TOY.q, (1, 1)), SampledTree(TOY.q, (2, 1), replace=False)


class Colder(SampledDrafter):
    """Draws one token a little colder than the q it claims: a bias of about 0.02, which counts must show."""

    emits = Emits(q=True)

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        """One token."""
        grown = Grown(tuple(context.tokens.tolist()))
        law = torch.tensor(TOY.q(grown.prefix), dtype=torch.float64)
        if budget.max_depth:
            grown.add(ROOT, noise.draw(law**1.25, 0), law)
        return grown.draft()
