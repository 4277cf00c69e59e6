"""Tries a loaded target on a small tree, before anyone relies on it. Knows of it only how sequences are decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from draftmux.backends.support import tolerance, tree_error
from draftmux.errors import ModelError
from draftmux.protocols import Row
from draftmux.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.backends.target import Target


EXACT_PROMPT = 62  # so that paths of a small tree cross a border of 64


def check_trees(target: Target) -> None:
    """Compare a tree pass and its compaction with sequential decoding, and that with the model's own forward.

    ModelError when they disagree.
    """
    name, dtype = type(target.model).__name__, target.model.dtype
    try:
        trees, steps = _tree_error(target), _step_error(target)
    except Exception as fault:
        raise ModelError(
            f"{name} fails on a draft tree, so it cannot be a target of this backend: {fault}; "
            f"`backend: {{use: transformers}}` takes the most models"
        ) from fault
    if not trees <= tolerance(dtype):
        raise ModelError(
            f"{name}: logits of a draft tree differ from sequential decoding by {_found(trees, dtype)}, so speculation "
            f"would change the text. The architecture does not follow the attention mask or position ids it is given "
            f"(or is a mixture of experts whose routing flips by rounding: `dtype: float32` tells). If you know "
            f"better: `backend: {{self_check: false}}`"
        )
    if not steps <= max(tolerance(dtype), tolerance(torch.float32)):  # the reference makes its softmax in float32
        raise ModelError(
            f"{name}: logits of decoding over the KV cache differ from one forward over the same tokens by "
            f"{_found(steps, dtype)}. The architecture has an attention of its own that this backend does not know; "
            f"try `backend: {{use: transformers}}`, or if you know better `self_check: false`"
        )


def _found(error: float, dtype: torch.dtype) -> str:
    return f"{error:.2g} (relative; {tolerance(dtype):.0e} is allowed in {dtype})"


def _tree_error(target: Target) -> float:
    tokens = np.random.default_rng(0).integers(0, target.vocab_size, 9).tolist()
    draft = Draft([tokens[5], tokens[6], tokens[7], tokens[8]], [-1, -1, 1, 2])
    opened = target.open(tokens[:5]).sequence
    tree = target.score([Row(opened, tokens[4], draft)])[0].logits[[0, 2, 3, 4]]
    target.commit(opened, [1, 2])
    after = target.score([Row(opened, tokens[8], Draft.empty())])[0].logits.clone()
    target.close(opened)
    plain = _step_logits(target, [*tokens[:5], *tokens[6:]])[4:]
    return tree_error(torch.cat((tree, after)), torch.cat((plain, plain[-1:])))


@torch.inference_mode()
def _step_error(target: Target) -> float:
    """Decoding over the cache against a forward by transformers' own eager attention, without a cache."""
    tokens = np.random.default_rng(1).integers(0, target.vocab_size, 9).tolist()
    own = target.model.config.get_text_config(decoder=True)._attn_implementation
    target.model.set_attn_implementation("eager")
    try:
        whole: Any = target.model(input_ids=torch.tensor([tokens], device=target.device), use_cache=False)
    finally:
        target.model.set_attn_implementation(own)
    return tree_error(_step_logits(target, tokens), whole.logits[0])


def check_exact(target: Target, draft: Draft) -> None:
    """Compare the bits of a draft's nodes with those of plain decoding; ModelError when any differ.

    In a mixture of experts, for one, a row's products depend on which other rows chose its expert.
    """
    room = (target.max_length or EXACT_PROMPT + len(draft) + 1) - len(draft) - 1
    length = max(1, min(EXACT_PROMPT, room))
    tokens = np.random.default_rng(2).integers(0, target.vocab_size, length + len(draft)).tolist()
    prompt, draft = tokens[:length], Draft(tokens[length:], draft.parents)
    opened = target.open(prompt).sequence
    found = target.score([Row(opened, prompt[-1], draft)])[0].logits.clone()
    target.close(opened)
    for node in set(range(len(draft))) - set(draft.parents.tolist()):  # the leaves
        path = draft.path_to(node)
        plain = _step_logits(target, [prompt[-1], *draft.tokens[path].tolist()], prompt[:-1])
        if not torch.equal(found[[0, *(n + 1 for n in path)]], plain):
            raise ModelError(
                f"{type(target.model).__name__}: a draft's logits have other bits than plain decoding's, so "
                f"`numerics: exact` does not hold for it on this machine (a mixture of experts, for one, mixes rows); "
                f"use `numerics: default`, or `self_check: false` if you know better"
            )


def _step_logits(target: Target, tokens: list[int], prompt: Sequence[int] = ()) -> Tensor:
    """Logits of decoding one token after the other, `(T, V)`, after a prompt."""
    opened = target.open([*prompt, tokens[0]]).sequence
    rows = []
    for token in tokens:
        rows.append(target.score([Row(opened, token, Draft.empty())])[0].logits.clone())
        target.commit(opened, ())
    target.close(opened)
    return torch.cat(rows)
