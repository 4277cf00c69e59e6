"""Where requests end: ends are picked from a run that had none, so that each falls inside an accepted block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.errors import RequestError
from draftmux.generation import Generation
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Oracle, TreeOracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import (
    BACKENDS,
    MODEL_VOCAB,
    MODELS,
    hash_law,
    model_law,
    script_law,
    scripted,
    tiny_target,
)
from draftmux.testing.texts import byte_tokenizer, cut_up

LETTERS = st.text(alphabet="abthe n\n🙂🙃é你们好", min_size=1, max_size=14)
K = [1, 2, 4, 8]


def oracle(k: int) -> Any:
    return lambda truths: {"oracle": Oracle(truths, k)}


@settings(max_examples=120)
@given(seed=some.SEEDS, temperature=st.sampled_from((0.0, 1.0)), at=st.integers(0, 11), data=st.data())
def test_end_tokens_picked_from_the_run(seed: int, temperature: float, at: int, data: Any) -> None:
    law, prompt = hash_law(seed, 8), data.draw(some.prompts(8))
    ask = Ask(prompt, Generation(max_new_tokens=12, temperature=temperature, seed=seed))
    run = Trial.prepare(scripted(law, 8), [ask]).expected["request"].tokens
    own = {run[at]} | data.draw(st.frozensets(st.integers(0, 7), max_size=1))
    given_ids = data.draw(st.lists(st.integers(0, 7), max_size=1))
    ignored = data.draw(st.booleans())
    ends = set(given_ids) | (set() if ignored else own)
    length = next((i + 1 for i, token in enumerate(run) if token in ends), len(run))

    generation = evolve(ask.generation, stop_ids=given_ids, ignore_eos=ignored)
    trial = Trial.prepare(scripted(law, 8, eos_ids=own), [Ask(prompt, generation)])
    found = trial.check(data.draw(some.drafter_sets(8)), data.draw(some.routers()))["request"].finished
    assert found.tokens == run[:length]
    assert found.finish_reason == ("stop" if run[length - 1] in ends else "length")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("name", MODELS)
def test_every_end_token_of_a_model_run(backend: str, name: str, k: int) -> None:
    ask = Ask((1, 2, 3, 4, 5), Generation(max_new_tokens=10))
    run = Trial.prepare(tiny_target(name, backend=backend), [ask], model_law(name)).expected["request"].tokens
    for token in run:
        ends = {token, run[-1]}
        trial = Trial.prepare(tiny_target(name, backend=backend, eos_ids=ends), [ask], model_law(name))
        found = trial.check(lambda truths: {"tree": TreeOracle(truths, MODEL_VOCAB, k)})["request"].finished
        assert found.tokens == run[: min(map(run.index, ends)) + 1]


@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("length", range(1, 12))
def test_exactly_max_new_tokens(length: int, k: int) -> None:
    target = scripted(hash_law(4, 6), 6)
    found = Trial.prepare(target, [Ask((1,), Generation(max_new_tokens=length))]).check(oracle(k))["request"].finished
    assert len(found.tokens) == length
    assert found.finish_reason == "length"


@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("end", range(8))
def test_stop_beats_length_on_the_same_token(end: int, k: int) -> None:
    script = [0, *range(1, 12)]  # every token once
    target = scripted(script_law(script, 12, last=0), 12, eos_ids={script[1 + end]})
    for limit in (end + 1, end + 2):
        trial = Trial.prepare(target, [Ask((0,), Generation(max_new_tokens=limit))])
        found = trial.check(oracle(k))["request"].finished
        assert (found.tokens, found.finish_reason) == (tuple(script[1 : end + 2]), "stop")


def test_an_end_token_in_the_prompt_ends_nothing() -> None:
    target = scripted(script_law([3, 5, 3, 1, 2, 5, 1], 6, last=0), 6, eos_ids={5})
    found = Trial.prepare(target, [Ask((3, 5, 3), Generation(max_new_tokens=8))]).check(oracle(4))["request"].finished
    assert found.tokens == (1, 2, 5)


def test_ignored_end_tokens_are_ordinary() -> None:
    target = scripted(script_law([0, 5, 5, 1, 5, 2], 6, last=5), 6, eos_ids={5})
    ask = Ask((0,), Generation(max_new_tokens=7, ignore_eos=True))
    found = Trial.prepare(target, [ask]).check(oracle(4))["request"].finished
    assert (found.tokens, found.finish_reason) == ((5, 5, 1, 5, 2, 5, 5), "length")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompt", [1, 15, 22, 23])
def test_the_context_limit_is_a_length(backend: str, name: str, prompt: int) -> None:
    target = tiny_target(name, backend=backend, positions=24)
    asks = [Ask(tuple(range(prompt)), Generation(), "long"), Ask((3, 4), Generation(max_new_tokens=5), "short")]
    trial = Trial.prepare(target, asks, model_law(name, 24))
    found = trial.check(lambda truths: {"tree": TreeOracle(truths, MODEL_VOCAB, k=8)}, max_batch=2)["long"].finished
    assert (len(found.tokens), found.finish_reason) == (24 - prompt, "length")


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    with pytest.raises(RequestError, match="24"):
        serve(assemble(tiny_target("llama", positions=24)), [Ask(tuple(range(24)))])


@settings(max_examples=150)
@given(seed=some.SEEDS, text=LETTERS, data=st.data())
def test_stop_texts_picked_from_the_run(seed: int, text: str, data: Any) -> None:
    """A part of the text is a stop text, wherever tokens, characters and blocks begin and end."""
    begin = data.draw(st.integers(0, len(text) - 1))
    stop = text[begin : data.draw(st.integers(begin + 1, len(text)))]
    others = data.draw(st.lists(LETTERS, max_size=2))
    found = _write(text, [stop], seed, data).finished
    assert (found.text, found.finish_reason) == (text[: text.index(stop)], "stop")
    several = _write(text, [*others, stop], seed, data).finished
    assert not any(other in several.text for other in (stop, *others))


@settings(max_examples=60)
@given(seed=some.SEEDS, text=LETTERS, data=st.data())
def test_text_held_back_for_a_stop_is_given_out_at_the_end(seed: int, text: str, data: Any) -> None:
    found = _write(text, [text + "!", text[-1] + "?"], seed, data).finished
    assert (found.text, found.finish_reason) == (text, "stop")


def _write(text: str, stops: list[str], seed: int, data: Any) -> Any:
    """Have a target write `text` in pieces of any size, then its end token; the stream shows whole characters only."""
    tokenizer = byte_tokenizer()
    ids, prompt = cut_up(text, np.random.default_rng(seed)), (70, 71)
    law = script_law([*prompt, *ids], len(tokenizer), tokenizer.eos_token_id)
    target = scripted(law, len(tokenizer), eos_ids={tokenizer.eos_token_id}, tokenizer=tokenizer)
    trial = Trial.prepare(target, [Ask(prompt, Generation(max_new_tokens=len(ids) + 1, stop=stops, logprobs=True))])
    outcome = trial.check(data.draw(some.drafter_sets(len(tokenizer))), data.draw(some.routers()))["request"]
    assert not any("\ufffd" in delta.text for delta in outcome.deltas)
    return outcome


@settings(max_examples=60)
@given(seed=some.SEEDS, temperature=st.sampled_from((0.0, 1.0)), data=st.data())
def test_bytes_that_are_no_text(seed: int, temperature: float, data: Any) -> None:
    """Random tokens are mostly broken characters; what is shown still adds up to what the decoder says."""
    tokenizer = byte_tokenizer()
    size = len(tokenizer)
    target = scripted(hash_law(seed, size), size, eos_ids={tokenizer.eos_token_id}, tokenizer=tokenizer)
    generation = Generation(max_new_tokens=10, temperature=temperature, stop=data.draw(st.lists(LETTERS, max_size=1)))
    trial = Trial.prepare(target, [Ask((70,), generation)])
    trial.check(data.draw(some.drafter_sets(size)), data.draw(some.routers()))
