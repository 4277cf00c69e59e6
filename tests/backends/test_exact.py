"""`numerics: exact`: a row has the same bits as the root of a plain step and as a node of a tree, in any precision."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.backends.static import exact as exact_module
from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.static.exact import ExactPass
from draftmux.backends.static.runner import SlotRunner
from draftmux.errors import ModelError
from draftmux.protocols import Row
from draftmux.testing import strategies as some
from draftmux.testing.drafters import grow_tree
from draftmux.testing.targets import MODELS, tiny_model
from draftmux.types import Budget, Draft, Tap

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


def check(target: Any, seed: int, length: int, nodes: int) -> None:
    """A random tree after a random prompt, then one more token: the bits of decoding token by token, every time."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, target.vocab_size, length).tolist()
    root = int(rng.integers(target.vocab_size))
    draft = grow_tree(rng, [], nodes, target.vocab_size, Budget())
    other = target.open([1, 2, 3]).sequence  # a second sequence changes nothing
    handle = target.open([*prompt, root]).sequence
    scores, _ = target.score([Row(handle, root, draft), Row(other, 3, Draft.chain([4]))])
    for node in rng.permutation(len(draft))[:3].tolist():
        path = draft.path_to(node)
        expected = plain_logits(target, prompt, [root, *draft.tokens[path].tolist()])
        assert torch.equal(scores.logits[[0, *(n + 1 for n in path)]], expected)
    path = draft.path_to(len(draft) - 1)
    target.commit(handle, path)
    following = target.score([Row(handle, 5, Draft.empty())])[0].logits[0]
    assert torch.equal(following, plain_logits(target, prompt, [root, *draft.tokens[path].tolist(), 5])[-1])
    target.close(handle)
    target.close(other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=6)
@given(seed=some.SEEDS, length=st.integers(1, 200), nodes=st.integers(1, 20), rows=st.sampled_from((8, 16)))
def test_every_node_has_the_bits_of_plain_decoding(
    name: str, dtype: torch.dtype, seed: int, length: int, nodes: int, rows: int
) -> None:
    check(exact(name, dtype, rows), seed, length, nodes)


@pytest.mark.parametrize("length", [*range(60, 66), 127, 128])
def test_paths_across_the_borders_of_blocks(length: int) -> None:
    for seed in range(3):
        check(exact("llama", torch.bfloat16), seed, length, 20)
        check(exact("mistral", torch.bfloat16, rows=16), seed, length, 20)


def test_taps_come_for_all_rows_of_all_passes() -> None:
    tap = Tap(0, "resid_post")
    model = copy.deepcopy(tiny_model("llama")).float()
    target = StaticBackend(numerics="exact", exact_rows=8, self_check=False).over(model, taps=(tap,))  # type: ignore[call-arg]
    handles = [target.open([1, 2, 3]).sequence, target.open([4]).sequence]
    both = target.score([Row(handles[0], 3, Draft.chain([5, 6, 7, 8] * 4)), Row(handles[1], 4, Draft.empty())])
    assert [len(scores.taps[tap]) for scores in both] == [17, 1]
    alone = target.score([Row(handles[0], 3, Draft.chain([5]))])[0].taps[tap]
    assert torch.equal(alone, both[0].taps[tap][:2])


def test_a_draft_of_300_nodes_goes_in_passes_of_one_size() -> None:
    target = exact("llama", torch.bfloat16, rows=16)
    check(target, 1, 100, 300)


# What the property must notice.


def default_numerics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SlotRunner, "_exactly", _whole)


def _whole(runner: Any, row: int, feed: Any) -> Any:
    runner._aim(row, [feed])
    logits, taps = runner._forward(runner.call, [feed], runner._pass([feed]))
    return logits[0], taps


def nodes_add_their_keys_backwards(patch: pytest.MonkeyPatch) -> None:
    original = exact_module._slots
    patch.setattr(exact_module, "_slots", lambda feed, row, whole: original(feed, row, whole)[:: -1 if row else 1])


def a_path_by_slots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(exact_module, "_slots", lambda feed, row, whole: np.arange(64 * whole, feed.slot + row + 1))


def blocks_added_up_backwards_in_trees(patch: pytest.MonkeyPatch) -> None:
    original = exact_module._combined

    def combined(parts: Any) -> Any:
        return original(parts if combined.turn else parts[::-1])  # type: ignore[attr-defined]

    combined.turn = False  # type: ignore[attr-defined]

    def attend(self: Any, *operands: Any) -> Any:
        combined.turn = bool(self.feed.mask.sum() > len(self.feed.mask))  # type: ignore[attr-defined]
        return attention(self, *operands)

    attention = ExactPass.attend
    patch.setattr(exact_module, "_combined", combined)
    patch.setattr(ExactPass, "attend", attend)


@pytest.mark.parametrize(
    "fault",
    [
        default_numerics,
        nodes_add_their_keys_backwards,
        a_path_by_slots,
        blocks_added_up_backwards_in_trees,
    ],
)
def test_faults_are_noticed(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        for seed in range(6):
            check(exact("llama", torch.float32), seed, 150, 12)


def test_the_self_check_compares_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(tiny_model("llama")).float()
    StaticBackend(numerics="exact").over(copy.deepcopy(model))  # type: ignore[call-arg]
    nodes_add_their_keys_backwards(monkeypatch)
    with pytest.raises(ModelError, match="other bits than plain decoding"):
        StaticBackend(numerics="exact").over(model)  # type: ignore[call-arg]
