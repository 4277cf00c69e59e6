"""Threads that share a pipeline, or pipelines that share a backend, write what each writes alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from attrs import evolve

from draftmux.generation import Generation
from draftmux.testing.drafters import RandomTree, TreeOracle
from draftmux.testing.harness import Trial, assemble, check_outcome, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import MODEL_VOCAB, model_law, tiny_target

THREADS = 4


def run_together(lock: Any = None) -> None:
    target = tiny_target("llama")
    asks = [Ask((number, 2, 3), Generation(max_new_tokens=24, seed=number), f"r{number}") for number in range(THREADS)]
    trial = Trial.prepare(target, asks, model_law("llama"))
    first = assemble(target, {"tree": TreeOracle(trial.truths, MODEL_VOCAB, k=4)})
    other = evolve(assemble(target, {"random": RandomTree(MODEL_VOCAB)}), lock=first.lock)
    if lock is not None:
        first, other = evolve(first, lock=lock), evolve(other, lock=lock)
    with ThreadPoolExecutor(THREADS) as pool:
        served = list(pool.map(lambda n: serve((first, other)[n % 2], [asks[n]]), range(THREADS)))
    for ask, outcomes in zip(asks, served, strict=True):
        check_outcome(outcomes[ask.request_id], trial.expected[ask.request_id])


def test_threads_take_turns() -> None:
    for _ in range(3):
        run_together()


def test_without_the_lock_they_spoil_each_other() -> None:
    with pytest.raises(Exception):  # noqa: B017 (a wrong text, or a broken cache)
        for _ in range(100):
            run_together(nullcontext())
