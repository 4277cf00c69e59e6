"""Sampled text of the whole engine, counted: its law is the target's, and as many tokens are accepted as should be.

Enumeration cannot see the noise itself: that the engine's own numbers are independent shows only in what they draw.
Requests are long because opening one costs more than a step. Every token is a sample: whatever came before, the next
one has the target's law.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from attrs import evolve, frozen

from draftmux.backends.scripted import ScriptedTarget
from draftmux.generation import Generation
from draftmux.noise import Stream, gumbel, stream_seed
from draftmux.sampling import Sampler
from draftmux.testing.harness import assemble, serve
from draftmux.testing.laws import Trial, distance
from draftmux.testing.reference import Ask
from draftmux.testing.routers import Watching
from draftmux.testing.sampled import Grown, SampledDrafter, SampledTree
from draftmux.testing.toys import Toy
from draftmux.tree import ROOT
from draftmux.types import Emits
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

if TYPE_CHECKING:
    from draftmux.protocols import Verifier
    from draftmux.testing.sampled import Noise
    from draftmux.types import Budget, Context, Draft, Step

P = ((0.5, 0.3, 0.2), (0.1, 0.6, 0.3), (0.35, 0.25, 0.4))
Q = ((0.2, 0.2, 0.6), (0.3, 0.4, 0.3), (0.6, 0.2, 0.2))
TOY = Toy(lambda prefix: [math.log(share) for share in P[prefix[-1]]], lambda prefix: Q[prefix[-1]])
REQUESTS, TOKENS = 64, 250
PLAIN = Generation(temperature=1.0)
LEAST = 1e-4


@frozen(eq=False)
class Played:
    """Texts of many requests (prompt included), and what the router saw of every step: the last token, the step."""

    texts: list[tuple[int, ...]]
    steps: list[tuple[int, Step]]


def play(verifier: Verifier, drafter: SampledDrafter, toy: Toy = TOY, requests: int = REQUESTS) -> Played:
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
    degrees = torch.tensor(2.0 * len(pasts), dtype=torch.float64)
    return float(torch.special.gammaincc(degrees / 2, torch.tensor(statistic / 2, dtype=torch.float64)))


CHAIN, TREE = SampledTree(TOY.q, (1, 1)), SampledTree(TOY.q, (2, 1), replace=False)
CASES = [
    *(
        (verifier, CHAIN) for verifier in (ExactMatch(), Rejection(), Block())
    ),  # on chains traversal is block, number by number
    *((verifier, TREE) for verifier in (ExactMatch(), Rejection(), Traversal())),
]


@pytest.mark.parametrize(
    ("verifier", "drafter"), CASES, ids=lambda one: type(one).__name__ + str(getattr(one, "widths", ""))
)
def test_the_text_has_the_law_of_the_target_and_enough_is_accepted(verifier: Verifier, drafter: SampledTree) -> None:
    requests = REQUESTS // 2 if verifier.pathwise else REQUESTS  # that one's text is compared token by token elsewhere
    played = play(verifier, drafter, requests=requests)
    assert sum(pairs(played).values()) == requests * TOKENS
    assert min(p_value(pairs(played)), p_value(first_of_rounds(played))) > LEAST
    for root in range(3):
        check_accepted(played, verifier, drafter, evolve(TOY, prompt=(root,)))


def check_accepted(played: Played, verifier: Verifier, drafter: SampledDrafter, toy: Toy) -> None:
    """A rule can be lossless and slow: the mean over rounds after the toy's prompt, within 4 standard errors."""
    whole = [(last, step) for last, step in played.steps if step.draft.depths.max(initial=0) == 2]
    lengths = [len(step.acceptance.path) for last, step in whole if (last,) == toy.prompt]
    law = [(len(run) - 1, share) for run, share in Trial.prepare(verifier, drafter, toy, PLAIN).rounds(1)]
    mean = sum(length * share for length, share in law)
    error = math.sqrt((sum(length**2 * share for length, share in law) - mean**2) / len(lengths))
    assert abs(sum(lengths) / len(lengths) - mean) < 4 * error


class Colder(SampledDrafter):
    """Draws a little colder than the q it claims."""

    emits = Emits(q=True)

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        grown = Grown(tuple(context.tokens.tolist()))
        law = torch.tensor(TOY.q(grown.prefix), dtype=torch.float64)
        if budget.max_depth:
            grown.add(ROOT, noise.draw(law**1.25, 0), law)
        return grown.draft()


def test_a_small_bias_is_caught() -> None:
    """What the enumeration measures as a total variation of about 0.02, the counts of the text show too."""
    off = [distance(Rejection(), Colder(), evolve(TOY, prompt=(root,))) for root in range(3)]
    assert 0.01 < min(off) < max(off) < 0.04
    assert p_value(first_of_rounds(play(Rejection(), Colder(), requests=3 * REQUESTS // 2))) < LEAST


def test_noise_of_drafts_and_residuals_that_is_one_and_the_same_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(sampler: Sampler, law: torch.Tensor, key: int = ROOT) -> int:
        seed = stream_seed(sampler.rule.seed, Stream.DRAFT, key + 2)
        return int((law.log() + gumbel(seed, len(sampler.context.tokens), len(law))).argmax())

    monkeypatch.setattr(Sampler, "draw", draw)
    assert p_value(pairs(play(Rejection(), CHAIN, requests=16))) < LEAST


def test_noise_that_is_the_same_at_every_position_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Sampler.bernoulli

    def bernoulli(sampler: Sampler, probability: float, key: int) -> bool:
        context = evolve(sampler.context, tokens=sampler.context.tokens[:1])
        return original(evolve(sampler, context=context), probability, key)

    monkeypatch.setattr(Sampler, "bernoulli", bernoulli)
    assert p_value(first_of_rounds(play(Rejection(), CHAIN, requests=16))) < LEAST


def test_accepted_tokens_follow_the_formula() -> None:
    """Leviathan et al., equation 1: with acceptance a per token, a round gives (1 - a^(K+1)) / (1 - a) tokens."""
    p, q, length = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6), 3
    toy = Toy(lambda prefix: [math.log(share) for share in p], lambda prefix: q)
    a, drafter = sum(map(min, p, q)), SampledTree(toy.q, (1,) * length)
    steps = [step for _, step in play(Rejection(), drafter, toy, 32).steps]
    gains = [len(step.acceptance.path) + 1 for step in steps if len(step.draft) == length]
    mean = sum(gains) / len(gains)
    error = math.sqrt(sum((gain - mean) ** 2 for gain in gains)) / len(gains)
    assert abs(mean - (1 - a ** (length + 1)) / (1 - a)) < 3 * error
