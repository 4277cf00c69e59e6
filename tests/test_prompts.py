from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from draftmux.errors import RequestError
from draftmux.generation import Generation
from draftmux.pipeline import override
from draftmux.prompts import encode, is_single


@pytest.mark.parametrize(
    ("prompts", "single"),
    [("a", True), ([1, 2], True), (np.array([1, 2]), True), ([{"role": "user"}], True), ([], False), (["a"], False)],
)
def test_one_prompt_or_many(prompts: Any, single: bool) -> None:
    assert is_single(prompts) is single


@pytest.mark.parametrize("prompts", [None, 5, {"a": 1}])
def test_what_is_no_prompt_at_all(prompts: Any) -> None:
    with pytest.raises(RequestError, match="a prompt is a text"):
        is_single(prompts)


@pytest.mark.parametrize("prompt", [1.5, None, ["x"], [1, 2.5], {"a": 1}])
def test_what_is_no_prompt_in_a_list(prompt: Any) -> None:
    with pytest.raises(RequestError, match="a prompt is a text"):
        encode(prompt, None, Generation())


def test_ids_are_plain_integers() -> None:
    assert encode(np.array([3, 4]), None, Generation()) == [3, 4]
    assert all(type(token) is int for token in encode(np.array([3]), None, Generation()))


TOKENIZED = BatchEncoding({"input_ids": [1, 2], "attention_mask": [1, 1]})


@pytest.mark.parametrize(
    "prompt", [TOKENIZED, b"abc", bytearray(b"abc"), memoryview(b"abc"), {}, set(), {1}, (i for i in [1]), np.array(3)]
)
def test_other_containers_are_no_prompts(prompt: Any) -> None:
    for refuse in (lambda: is_single(prompt), lambda: encode(prompt, None, Generation())):
        with pytest.raises(RequestError, match=f"a prompt is a text, .*, not {type(prompt).__name__}"):
            refuse()


def test_what_a_tokenizer_gave_is_pointed_at() -> None:
    with pytest.raises(RequestError, match=r"not BatchEncoding \(give its 'input_ids'\)"):
        is_single(TOKENIZED)
    with pytest.raises(RequestError, match="a prompt is a text"):
        encode([TOKENIZED], None, Generation())


@pytest.mark.parametrize("one", [torch.tensor([3, 4]), np.array([3, 4], np.uint16), [np.int32(3), np.int64(4)], (3, 4)])
def test_ids_may_come_from_numpy_and_torch(one: Any) -> None:
    assert is_single(one) is True
    assert encode(one, None, Generation()) == [3, 4]


@pytest.mark.parametrize("several", [torch.tensor([[3, 4]]), np.array([[3, 4]]), [np.array([3, 4])]])
def test_rows_are_prompts(several: Any) -> None:
    assert is_single(several) is False
    assert [encode(prompt, None, Generation()) for prompt in several] == [[3, 4]]


def test_settings_may_come_from_numpy() -> None:
    settings = {"temperature": np.float32(0.5), "max_new_tokens": np.int64(5), "stop_ids": np.array([1, 2])}
    changed = override(Generation(), settings | {"logit_bias": {np.int64(3): np.float64(1)}, "logprobs": np.True_})
    assert changed == Generation(temperature=0.5, max_new_tokens=5, stop_ids=[1, 2], logit_bias={3: 1.0}, logprobs=True)
    assert all(type(getattr(changed, name)) is kind for name, kind in (("temperature", float), ("max_new_tokens", int)))


def test_all_faults_of_settings_are_told_in_plain_words() -> None:
    with pytest.raises(RequestError) as refused:
        override(Generation(), {"seed": -1, "top_p": 2.0, "temperature": np.array([1.0, 2.0])})
    assert str(refused.value).split("; ") == [
        "settings: temperature must be a number, not a list",
        "settings: 'seed' must be >= 0: -1",
        "settings: 'top_p' must be <= 1: 2.0",
    ]
