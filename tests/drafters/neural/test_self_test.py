"""The test at load tells a draft model of the target from one that knows nothing of it, and leaves no trace."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch

from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.neural.reader import Reader
from draftmux.drafters.neural.self_test import check_agreement
from draftmux.drafters.sps.bound import BoundSps
from draftmux.drafters.sps.drafter import Sps
from draftmux.protocols import Resources
from draftmux.testing.texts import byte_tokenizer


@pytest.fixture(scope="module")
def model() -> Any:
    """Random, over the ids of a byte tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = LlamaForCausalLM(LlamaConfig(vocab_size=len(byte_tokenizer()), tie_word_embeddings=False, **sizes))
        for parameter in made.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(0, 0.4)
    return made.double().eval()


def bound(model: Any, draft: Any) -> tuple[BoundSps, Resources]:
    from draftmux.backends.static.backend import StaticBackend

    target = StaticBackend(self_check=False).over(copy.deepcopy(model))
    options = Sps(model="draft", depth=2)
    drafter = BoundSps(options, target, Reader(target.beside(draft, self_check=False)), Vocabulary(target.vocab_size))
    return drafter, Resources(byte_tokenizer(), target)


def test_the_target_itself_agrees(model: Any) -> None:
    drafter, resources = bound(model, copy.deepcopy(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_agreement("sps (draft)", drafter, resources) == 1.0
    assert not resources.backend._open  # type: ignore[union-attr]


def test_another_model_is_warned_of(model: Any) -> None:
    other = copy.deepcopy(model)
    other.lm_head.weight.data = other.lm_head.weight.data.flip(0)
    drafter, resources = bound(model, other)
    with pytest.warns(UserWarning, match=r"sps \(draft\): 0 of the first \d+ drafted tokens were the target's own"):
        assert check_agreement("sps (draft)", drafter, resources) == 0.0


def test_without_a_tokenizer_nothing_is_tried(model: Any) -> None:
    drafter, resources = bound(model, copy.deepcopy(model))
    assert check_agreement("sps (draft)", drafter, Resources(None, resources.backend)) is None
