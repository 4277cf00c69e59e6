"""`numerics: exact`: a row has the same bits as the root of a plain step and as a node of a tree, in any precision."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.backends.static.backend import StaticBackend
from draftmux.protocols import Row
from draftmux.testing import strategies as some
from draftmux.testing.drafters import grow_tree
from draftmux.testing.targets import MODELS, tiny_model
from draftmux.types import Budget, Draft

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def exact(name: str, dtype: torch.dtype, rows: int = 8) -> Any:
    model = copy.deepcopy(tiny_model(name, 600)).to(dtype)
    return StaticBackend(numerics="exact", exact_rows=rows, self_check=False).over(model)


def plain_logits(target: Any, prompt: list[int], tokens: list[int]) -> torch.Tensor:
    """Logits after each of `tokens`, decoded one by one."""
    handle = target.open([*prompt, tokens[0]]).sequence
    rows = []
    for token in tokens:
        rows.append(target.score([Row(handle, token, Draft.empty())])[0].logits[0])
        target.commit(handle, ())
    target.close(handle)
    return torch.stack(rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=6)
@given(seed=some.SEEDS, length=st.integers(1, 200), nodes=st.integers(1, 20))
def test_every_node_has_the_bits_of_plain_decoding(
    name: str, dtype: torch.dtype, seed: int, length: int, nodes: int
) -> None:
    rng, target = np.random.default_rng(seed), exact(name, dtype)
    prompt = rng.integers(0, target.vocab_size, length).tolist()
    root = int(rng.integers(target.vocab_size))
    draft = grow_tree(rng, [], nodes, target.vocab_size, Budget())
    other = target.open([1, 2, 3]).sequence  # a second sequence changes nothing
    handle = target.open([*prompt, root]).sequence
    scores, _ = target.score([Row(handle, root, draft), Row(other, 3, Draft.chain([4]))])
    for node in rng.permutation(len(draft))[:3].tolist():
        path = draft.path_to(node)
        tokens = draft.tokens[path].tolist()
        expected = plain_logits(target, prompt, [root, *tokens])
        assert torch.equal(scores.logits[[0, *(n + 1 for n in path)]], expected)
    path = draft.path_to(len(draft) - 1)
    target.commit(handle, path)
    following = target.score([Row(handle, 5, Draft.empty())])[0].logits[0]
    assert torch.equal(following, plain_logits(target, prompt, [root, *draft.tokens[path].tolist(), 5])[-1])
