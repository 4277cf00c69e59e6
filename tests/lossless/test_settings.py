"""Every processor and warper by itself: speculation equals plain decoding, token for token, five seeds and three k."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from draftmux import sampling
from draftmux.generation import Generation
from draftmux.processors import CountPenalty
from draftmux.sampling import Sampler
from draftmux.testing.constraints import Automaton
from draftmux.testing.drafters import Corrupt, TreeOracle
from draftmux.testing.harness import Trial
from draftmux.testing.reference import Ask
from draftmux.testing.targets import BACKENDS, MODEL_VOCAB, hash_law, model_law, scripted, tiny_target

SEEDS = range(5)
SIZES = (1, 4, 8)
ENDS = (0, 1)
# One setting at a time; what needs sampling is sampled, everything else is tried greedily too.
PROCESSORS: dict[str, dict[str, Any]] = {
    "none": {},
    "repetition penalty": {"repetition_penalty": 1.4},
    "frequency penalty": {"frequency_penalty": 0.7},
    "presence penalty": {"presence_penalty": 0.9},
    "negative penalties": {"frequency_penalty": -0.2, "presence_penalty": -0.3},
    "no repeat n-gram": {"no_repeat_ngram_size": 2},
    "logit bias": {"logit_bias": {2: 3.0, 3: -100.0}},
    "bad word": {"bad_word_ids": [[2], [3, 4]]},
    "minimum length": {"min_new_tokens": 6},
    "constraint": {"constraint": Automaton(4, share=0.8)},
    "all of them": {
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.1,
        "no_repeat_ngram_size": 3,
        "logit_bias": {5: 1.0},
        "bad_word_ids": [[2, 3]],
        "min_new_tokens": 3,
    },
}
WARPERS: dict[str, dict[str, Any]] = {
    "temperature 0.5": {"temperature": 0.5},
    "temperature 2": {"temperature": 2.0},
    "top-k": {"temperature": 1.0, "top_k": 3},
    "top-p": {"temperature": 1.0, "top_p": 0.7},
    "min-p": {"temperature": 1.0, "min_p": 0.2},
    "typical-p": {"temperature": 1.0, "typical_p": 0.6},
    "all of them": {"temperature": 1.3, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9},
}
CASES = {
    **{f"{name}, greedy": setting for name, setting in PROCESSORS.items()},
    **{f"{name}, sampled": {"temperature": 1.0, **setting} for name, setting in PROCESSORS.items()},
    **WARPERS,
}


def asks(setting: dict[str, Any], length: int) -> list[Ask]:
    return [
        Ask((2, 3, 2, 4), Generation(max_new_tokens=length, seed=seed, logprobs=True, **setting), f"seed-{seed}")
        for seed in SEEDS
    ]


@pytest.mark.parametrize("setting", CASES.values(), ids=CASES)
def test_a_setting_means_what_it_means_in_plain_decoding(setting: dict[str, Any]) -> None:
    trial = Trial.prepare(scripted(hash_law(5, 9), 9, eos_ids=ENDS), asks(setting, 14))
    trial.check()
    for k in SIZES:
        trial.check(lambda truths, k=k: {"tree": TreeOracle(truths, 9, k=k)}, max_batch=5)  # type: ignore[misc]
        trial.check(lambda truths, k=k: {"wrong": Corrupt(truths, 9, k=k, at=k // 2)})  # type: ignore[misc]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("setting", CASES.values(), ids=CASES)
def test_on_a_model_too(backend: str, setting: dict[str, Any]) -> None:
    target = tiny_target("llama", backend=backend, eos_ids=ENDS)
    trial = Trial.prepare(target, asks(setting, 10), model_law("llama"))
    for k in SIZES:
        trial.check(lambda truths, k=k: {"tree": TreeOracle(truths, MODEL_VOCAB, k=k)}, max_batch=5)  # type: ignore[misc]


def test_a_penalty_that_counts_the_prompt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CountPenalty.__call__
    monkeypatch.setattr(CountPenalty, "__call__", lambda self, *row: original(evolve(self, prompt_length=0), *row))
    with pytest.raises(AssertionError):
        test_penalties_count_generated_tokens_and_not_the_prompt()


def test_penalties_count_generated_tokens_and_not_the_prompt() -> None:
    """Token 2 fills the prompt. A frequency penalty takes the same off it each time it was generated."""
    flat = scripted(lambda prefix: [0.0, 0.9, 1.0], 3)
    for setting, tokens in (
        ({"presence_penalty": 0.5}, (2, 1, 2, 2)),
        ({"frequency_penalty": 0.06}, (2, 2, 1, 2)),
    ):
        trial = Trial.prepare(flat, [Ask((2, 2, 2), Generation(max_new_tokens=4, **setting))])
        assert trial.expected["request"].tokens == tokens
        trial.check(lambda truths: {"tree": TreeOracle(truths, 3, k=3)})


@pytest.mark.parametrize("setting", [s for s in CASES.values() if "constraint" not in s])
def test_off_the_host_all_picks_of_a_step_come_in_one_copy(
    setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pick that was not fetched with the others would cost a copy of its own."""

    def fetched(self: Any, node: int) -> int:
        assert self._picks is not None, "a pick is fetched by itself"
        return original(self, node)

    original = Sampler.pick
    trial = Trial.prepare(scripted(hash_law(5, 9), 9, eos_ids=ENDS), asks(setting, 14))
    monkeypatch.setattr(sampling, "on_host", lambda logits: False)
    monkeypatch.setattr(Sampler, "pick", fetched)
    trial.check(lambda truths: {"tree": TreeOracle(truths, 9, k=4)}, max_batch=5)
