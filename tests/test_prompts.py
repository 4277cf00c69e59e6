from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftmux.errors import RequestError
from draftmux.generation import Generation
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
