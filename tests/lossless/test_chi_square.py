"""Sampled text of the whole engine, counted: its law is the target's, and as many tokens are accepted as should be.

`docs/bench/chi_square.py` counts more of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from draftmux import noise
from draftmux.noise import Stream, stream_seed
from draftmux.sampling import Sampler
from draftmux.testing.frequencies import (
    CHAIN,
    PLAIN,
    TOKENS,
    TOY,
    TREE,
    Colder,
    Played,
    first_of_rounds,
    p_value,
    pairs,
    play,
)
from draftmux.testing.laws import Trial, distance
from draftmux.testing.sampled import SampledTree
from draftmux.testing.toys import Toy
from draftmux.tree import ROOT
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

if TYPE_CHECKING:
    import torch

    from draftmux.protocols import Verifier
    from draftmux.testing.sampled import SampledDrafter

REQUESTS = 32
LEAST = 1e-4
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


@pytest.mark.slow
def test_a_small_bias_is_caught() -> None:
    """What the enumeration measures as a total variation of about 0.02, the counts of the text show too."""
    off = [distance(Rejection(), Colder(), evolve(TOY, prompt=(root,))) for root in range(3)]
    assert 0.01 < min(off) < max(off) < 0.04
    assert p_value(first_of_rounds(play(Rejection(), Colder(), requests=3 * REQUESTS))) < LEAST


def test_noise_of_drafts_and_residuals_that_is_one_and_the_same_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(sampler: Sampler, law: torch.Tensor, key: int = ROOT) -> int:
        seed = stream_seed(sampler.rule.seed, Stream.DRAFT, key + 2)
        return noise.draw(law, seed, len(sampler.context.tokens))

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
