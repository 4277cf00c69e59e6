"""Speculation changes nothing: whatever drafts, routes and batches, requests end as plain decoding ends them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.generation import Generation
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Corrupt, Oracle, TreeOracle
from draftmux.testing.harness import Trial, assemble
from draftmux.testing.properties import check_alone
from draftmux.testing.reference import Ask
from draftmux.testing.targets import BACKENDS, MODEL_VOCAB, MODELS, hash_law, model_law, scripted, tiny_target

SAMPLED = Generation(
    max_new_tokens=14,
    temperature=1.0,
    seed=7,
    top_p=0.9,
    repetition_penalty=1.3,
    no_repeat_ngram_size=3,
    bad_word_ids=[[5], [3, 7]],
    logprobs=True,
)


@settings(max_examples=150)
@given(st.data())
def test_plain_decoding_is_the_loop_by_the_book(data: Any) -> None:
    target = data.draw(some.hash_targets())
    Trial.prepare(target, data.draw(some.asks(target))).check()


@settings(max_examples=300)
@given(st.data())
def test_speculation_over_pseudo_random_laws(data: Any) -> None:
    target = data.draw(some.hash_targets())
    trial = Trial.prepare(target, data.draw(some.asks(target)))
    trial.check(data.draw(some.drafter_sets(target.vocab_size)), data.draw(some.routers()))


@settings(max_examples=60)
@given(data=st.data(), count=st.integers(2, 6), max_batch=st.integers(1, 4))
def test_a_batch_gives_each_request_what_it_gets_alone(data: Any, count: int, max_batch: int) -> None:
    target = data.draw(some.hash_targets())
    trial = Trial.prepare(target, data.draw(some.asks(target, count)))
    drafters = data.draw(some.drafter_sets(target.vocab_size))(trial.truths)
    check_alone(trial, assemble(target, drafters, data.draw(some.routers())), max_batch)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=10)
@given(data=st.data(), count=st.integers(1, 4), max_batch=st.integers(1, 3))
def test_speculation_over_tiny_models(backend: str, name: str, data: Any, count: int, max_batch: int) -> None:
    positions = data.draw(st.sampled_from((256, 256, 16)))
    target = tiny_target(
        name, backend=backend, positions=positions, eos_ids=data.draw(st.frozensets(st.integers(0, 39), max_size=4))
    )
    asks = data.draw(some.asks(target, count, max_new_tokens=12))
    trial = Trial.prepare(target, asks, model_law(name, positions))
    trial.check(data.draw(some.drafter_sets(MODEL_VOCAB)), data.draw(some.routers()), max_batch)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize(
    "generation", [Generation(max_new_tokens=14, logprobs=True), SAMPLED], ids=["greedy", "sampled"]
)
@pytest.mark.parametrize("name", MODELS)
def test_every_draft_length_on_every_model(backend: str, name: str, generation: Generation, k: int) -> None:
    prompts = [(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), (12, 13), (14,)]
    asks = [Ask(prompt, generation, f"request-{i}") for i, prompt in enumerate(prompts)]
    trial = Trial.prepare(tiny_target(name, backend=backend), asks, model_law(name))
    for drafter in (Oracle(trial.truths, k), TreeOracle(trial.truths, MODEL_VOCAB, k), PromptLookup(length=k)):
        trial.check(lambda _, drafter=drafter: {"drafter": drafter}, max_batch=2)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("length", range(1, 13))
def test_an_oracle_needs_the_fewest_steps(length: int, k: int) -> None:
    target = scripted(hash_law(1, 6), 6)
    trial = Trial.prepare(target, [Ask((1, 2), Generation(max_new_tokens=length))])
    outcome = trial.check(lambda truths: {"oracle": Oracle(truths, k)})["request"]
    assert outcome.finished.metrics.steps == -(-length // (k + 1))


@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_stands_before_a_wrong_token_is_accepted(wrong: int, temperature: float) -> None:
    target = scripted(hash_law(2, 6), 6)
    trial = Trial.prepare(target, [Ask((3,), Generation(max_new_tokens=13, temperature=temperature))])
    outcome = trial.check(lambda truths: {"corrupt": Corrupt(truths, 6, k=4, at=wrong)})["request"]
    assert outcome.finished.metrics.steps == -(-13 // (wrong + 1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_a_tree_oracle_is_accepted_wherever_its_path_stands(backend: str, name: str) -> None:
    trial = Trial.prepare(
        tiny_target(name, backend=backend), [Ask((1, 2, 3), Generation(max_new_tokens=15))], model_law(name)
    )
    outcome = trial.check(lambda truths: {"tree": TreeOracle(truths, MODEL_VOCAB, k=4, distractors=9)})["request"]
    assert outcome.finished.metrics.steps == 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_the_cache_grows_while_a_batch_runs(backend: str, name: str) -> None:
    """The first request passes the first 256 slots while the others come and go."""
    prompts = [tuple(i % MODEL_VOCAB for i in range(247)), (1, 2), (3, 4, 5, 6), (7,)]
    asks = [Ask(p, Generation(max_new_tokens=22 - 5 * i), f"request-{i}") for i, p in enumerate(prompts)]
    trial = Trial.prepare(
        tiny_target(name, backend=backend, positions=600, prefill_chunk=100), asks, model_law(name, 600)
    )
    trial.check(lambda truths: {"tree": TreeOracle(truths, MODEL_VOCAB, k=3)}, max_batch=2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("positions", [16, 256])
@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
def test_costs_measured_in_the_middle_of_a_batch_disturb_nobody(backend: str, name: str, positions: int) -> None:
    asks = [Ask((1 + i, 2, 3), Generation(max_new_tokens=9 + i), f"request-{i}") for i in range(3)]
    target = tiny_target(name, backend=backend, positions=positions)
    target._curve = None
    trial = Trial.prepare(target, asks, model_law(name, positions))
    trial.check(lambda truths: {"tree": TreeOracle(truths, MODEL_VOCAB, k=3)}, max_batch=2)
    assert target._curve is not None
