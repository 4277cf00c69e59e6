"""A tree pass gives every node the logits of decoding its prefix, and leaves the cache as a prefill leaves it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.generation import Generation
from draftmux.testing import strategies as some
from draftmux.testing.drafters import TreeOracle
from draftmux.testing.properties import TreePasses, check_taps
from draftmux.testing.reference import Ask, expect
from draftmux.testing.targets import BACKENDS, MODEL_VOCAB, MODELS, model_law, tiny_target
from draftmux.types import Tap

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=4)
TAPS = tuple(Tap(layer, kind) for layer in (0, -1) for kind in ("attn_out", "resid_mid", "mlp_out", "resid_post"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25)
@given(seed=some.SEEDS, lengths=LENGTHS, chunk=st.sampled_from((1, 5, 1024)))
def test_tree_passes(backend: str, name: str, seed: int, lengths: list[int], chunk: int) -> None:
    TreePasses(tiny_target(name, backend=backend, prefill_chunk=chunk), np.random.default_rng(seed)).check(lengths)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=6)
@given(seed=some.SEEDS, lengths=LENGTHS)
def test_tree_passes_with_eager_attention(name: str, seed: int, lengths: list[int]) -> None:
    TreePasses(tiny_target(name, attention="eager"), np.random.default_rng(seed), near=1e-5).check(lengths)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_long_sequences_outgrow_the_cache(backend: str, name: str) -> None:
    TreePasses(tiny_target(name, backend=backend, positions=600), np.random.default_rng(3), max_nodes=9).check(
        [250, 3, 254], rounds=4
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_self_check_agrees(backend: str, name: str) -> None:
    tiny_target(name, backend=backend, self_check=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompt", [(1,), (1, 2), tuple(range(12))], ids=["one", "two", "twelve"])
def test_taps_are_the_states_of_the_committed_path(backend: str, name: str, prompt: tuple[int, ...]) -> None:
    target = tiny_target(name, backend=backend, taps=TAPS, prefill_chunk=5)
    ask = Ask(prompt, Generation(max_new_tokens=14))
    truth = expect(ask, target, model_law(name)).truth
    check_taps(target, TAPS, ask, TreeOracle([truth], MODEL_VOCAB, k=3))
