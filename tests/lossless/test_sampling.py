"""The draw: uniforms by the book, the right law, the lowest id on ties, transformers' own processors and order."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.errors import RequestError
from draftmux.generation import Generation
from draftmux.noise import draw, gumbel, perturbed, uniforms
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Oracle, TreeOracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.outside import check_laws, check_text
from draftmux.testing.reference import Ask, uniform
from draftmux.testing.targets import MODEL_VOCAB, MODELS, hash_law, random_table, scripted, table_law

WIDE = 1 << 40


@pytest.mark.parametrize(
    ("seed", "position", "token", "value"),
    [
        (0, 0, 0, 0.652448486374),
        (0, 1, 0, 0.276233582278),
        (0, 0, 1, 0.701212109522),
        (7, 10, 123, 0.273527246322),
    ],
)
def test_reference_uniforms(seed: int, position: int, token: int, value: float) -> None:
    assert float(uniforms(seed, position, 200)[token]) == pytest.approx(value, abs=1e-12)
    assert uniform(seed, position, token) == pytest.approx(value, abs=1e-12)


@settings(max_examples=50)
@given(seed=st.integers(0, (1 << 64) - 1), position=st.integers(0, WIDE))
def test_uniforms_are_the_scalar_formula(seed: int, position: int) -> None:
    found = uniforms(seed, position, 9).tolist()
    assert found == [uniform(seed, position, token) for token in range(9)]
    assert all(0 < u < 1 for u in found)


def test_noise_is_finite_for_every_uniform_that_can_occur() -> None:
    ends = torch.tensor([0.5, 2.0**52 - 0.5], dtype=torch.float64) * 2.0**-52
    assert (-torch.log(-torch.log(ends))).isfinite().all()
    assert gumbel(3, 5, 1000).isfinite().all()


@settings(max_examples=50)
@given(seed=some.SEEDS, position=st.integers(0, WIDE), data=st.data())
def test_noise_of_a_few_tokens_is_that_of_all(seed: int, position: int, data: Any) -> None:
    """What cannot be drawn gets none, and stays what it is."""
    value = st.one_of(st.floats(-20, 20), st.sampled_from((-math.inf, math.nan, math.inf)))
    dtype = data.draw(st.sampled_from((torch.float32, torch.float64)))
    logits = torch.tensor(data.draw(st.lists(value, min_size=1, max_size=12)), dtype=dtype)
    before = logits.clone()
    expected = logits + gumbel(seed, position, len(logits))
    found = perturbed(logits, seed, position)
    assert found.dtype == torch.float64 and torch.allclose(found, expected, atol=1e-12, rtol=0, equal_nan=True)
    assert torch.equal(logits.nan_to_num(9e9), before.nan_to_num(9e9))
    law = logits.nan_to_num(0.0, 0.0, 0.0).softmax(-1) * (logits > 0)
    assert draw(law, seed, position) == int((law.log() + gumbel(seed, position, len(law))).argmax())


def test_uniforms_are_uniform_and_neighbours_unrelated() -> None:
    table = np.stack([uniforms(11, position, 512).numpy() for position in range(128)])  # (128, 512)
    counts = np.histogram(table, bins=20, range=(0, 1))[0]
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 50  # chi-square, 19 degrees: p < 1e-4
    for shifted in (np.roll(table, 1, axis=0), np.roll(table, 1, axis=1), uniforms(12, 0, 512).numpy()[None]):
        assert abs(np.corrcoef(table.ravel(), np.broadcast_to(shifted, table.shape).ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_two_drawn_tokens_follow_the_enumerated_law(temperature: float) -> None:
    """Every pair of tokens over 5 ids, drawn through the engine with one seed after another, drafts and all."""
    size, draws = 5, 1500
    table = random_table(3, size)
    law = torch.softmax(torch.tensor(table, dtype=torch.float64) / temperature, -1).numpy()
    target = scripted(table_law(table), size)
    asks = [
        Ask((2,), Generation(max_new_tokens=2, temperature=temperature, seed=seed), f"request-{seed}")
        for seed in range(draws)
    ]
    drafter = TreeOracle([(2, a) for a in range(size)], size, k=1, distractors=4)
    outcomes = serve(assemble(target, {"tree": drafter}), asks, max_batch=8)
    found = Counter(outcome.finished.tokens for outcome in outcomes.values())
    expected = {(a, b): draws * law[2, a] * law[a, b] for a, b in itertools.product(range(size), repeat=2)}
    chi_square = sum((found[pair] - count) ** 2 / count for pair, count in expected.items())
    assert chi_square < 62  # 24 degrees of freedom: p < 3e-5


@settings(max_examples=60)
@given(seed=some.SEEDS, levels=st.integers(1, 3), data=st.data())
def test_ties_go_to_the_lowest_id(seed: int, levels: int, data: Any) -> None:
    target = scripted(hash_law(seed, 7, levels), 7)
    trial = Trial.prepare(target, [Ask((1, 2), Generation(max_new_tokens=10))])
    trial.check(data.draw(some.drafter_sets(7)), data.draw(some.routers()))


@pytest.mark.parametrize("temperature", [1e-8, 1e-3])
def test_a_temperature_near_zero_is_greedy(temperature: float) -> None:
    target = scripted(hash_law(9, 7), 7)
    asks = [Ask((1,), Generation(max_new_tokens=12, temperature=t), f"at-{t}") for t in (0.0, temperature)]
    trial = Trial.prepare(target, asks)
    greedy, near = trial.check(lambda truths: {"tree": TreeOracle(truths, 7)}).values()
    assert greedy.finished.tokens == near.finished.tokens


def test_banning_an_end_token_is_refused() -> None:
    """transformers would ignore it."""
    parts = assemble(scripted(hash_law(9, 7), 7, eos_ids={3}))
    with pytest.raises(RequestError, match="end token 3"):
        serve(parts, [Ask((1,), Generation(bad_word_ids=[[1], [3]]))])


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("at", range(1, 8))
def test_where_no_token_can_follow_only_that_request_ends(at: int, temperature: float, value: float) -> None:
    """One request runs into a row without a best token; another ends just before that row."""
    law = hash_law(6, 6)
    broken = scripted(lambda prefix: [value] * 6 if len(prefix) == at + 2 else law(prefix), 6)
    settings_of = {"temperature": temperature, "max_new_tokens": 9}
    fails = Ask((1, 2), Generation(**settings_of), "fails")
    run = Trial.prepare(scripted(law, 6), [fails]).expected["fails"].tokens
    ends = Ask((1, 2), Generation(**settings_of, stop_ids=[run[at - 1]]), "ends")
    outcomes = Trial.prepare(broken, [fails, ends]).check(
        lambda _: {"oracle": Oracle([(1, 2, *run)], k=8)}, max_batch=2
    )
    assert isinstance(outcomes["fails"].error, RequestError)
    assert outcomes["ends"].finished.finish_reason == "stop"


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=20)
@given(data=st.data())
def test_greedy_text_is_that_of_transformers_generate(name: str, data: Any) -> None:
    eos_ids = data.draw(st.frozensets(st.integers(0, MODEL_VOCAB - 1), max_size=4))
    prompt = data.draw(some.prompts(MODEL_VOCAB, 12))
    generation = data.draw(some.generations(MODEL_VOCAB, 14, eos_ids, temperature=0.0, ignore_eos=False))
    generation = evolve(
        generation,
        min_new_tokens=min(generation.min_new_tokens, generation.max_new_tokens),
        # transformers knows end tokens of one kind only, and does not ban them.
        bad_word_ids=[word for word in generation.bad_word_ids if word != generation.stop_ids],
    )
    check_text(name, prompt, generation, eos_ids)


@settings(max_examples=40)
@given(data=st.data(), temperature=st.sampled_from((0.3, 1.0, 2.0)))
def test_sampled_laws_are_those_of_transformers_generate(data: Any, temperature: float) -> None:
    prompt = data.draw(some.prompts(MODEL_VOCAB, 5))
    generation = data.draw(some.generations(MODEL_VOCAB, 6, temperature=temperature, stop_ids=[], min_new_tokens=0))
    check_laws("llama", prompt, generation)
