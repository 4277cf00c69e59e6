"""A tree pass gives every node the logits of decoding its prefix, and leaves the cache as a prefill leaves it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.testing import strategies as some
from draftmux.testing.drafters import TreeOracle
from draftmux.testing.properties import TreePasses, check_close, check_taps, whole_forward
from draftmux.testing.reference import Ask, expect
from draftmux.testing.targets import MODEL_VOCAB, MODELS, model_law, tiny_model, tiny_target
from draftmux.generation import Generation
from draftmux.protocols import Row
from draftmux.types import Draft, Tap

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=3)
TAPS = tuple(Tap(layer, kind) for layer in (0, -1) for kind in ("attn_out", "resid_mid", "mlp_out", "resid_post"))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=6)
@given(seed=some.SEEDS, lengths=LENGTHS, chunk=st.sampled_from((1, 5, 1024)))
def test_tree_passes(name: str, attention: str, seed: int, lengths: list[int], chunk: int) -> None:
    target = tiny_target(name, attention=attention, prefill_chunk=chunk)
    TreePasses(target, np.random.default_rng(seed), near=1e-9 if attention == "sdpa" else 1e-5).check(lengths)
