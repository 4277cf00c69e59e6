"""Speculation changes nothing: whatever drafts, routes and batches, requests end as plain decoding ends them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.testing import strategies as some
from draftmux.testing.harness import Trial
from draftmux.testing.targets import MODELS, MODEL_VOCAB, model_law, tiny_target


@settings(max_examples=150)
@given(st.data())
def test_plain_decoding_is_the_loop_by_the_book(data: Any) -> None:
    target = data.draw(some.hash_targets())
    Trial.prepare(target, data.draw(some.asks(target.vocab_size))).check()


@settings(max_examples=250)
@given(st.data())
def test_speculation_over_pseudo_random_laws(data: Any) -> None:
    target = data.draw(some.hash_targets())
    trial = Trial.prepare(target, data.draw(some.asks(target.vocab_size)))
    trial.check(data.draw(some.drafter_sets(target.vocab_size)), data.draw(some.routers()))
