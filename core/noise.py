"""Randomness as a function of (seed, position, stream), never of the order of calls, and draws with it.

Knows nothing of requests, drafts or what a token means.

The same numbers come out on every device, for every batch, drafter and step border.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


class Stream(IntEnum):
    """Independent sources of noise of one request.

    `TOKEN` is the noise with which the target picks its tokens, keyed by the position of the token. A drafter that
    draws with it is coupled to the target, and its drafts are point masses: it must give no q, since what it draws
    next depends on numbers that this step has shown. `ACCEPT` decides acceptances and `RESIDUAL` draws what follows a
    rejection, both keyed by the position of the root, so no step sees a number that an earlier step has looked at.
    `DRAFT` is for drafters that must be independent of all of them, keyed by the root likewise.
    """

    TOKEN = 0
    ACCEPT = 1
    RESIDUAL = 2
    DRAFT = 3


def stream_seed(seed: int, stream: Stream, key: int = 0) -> int:
    """The seed of one stream of a request, or of one of its parts. The seed of `TOKEN` is the request's own."""
    if stream is Stream.TOKEN:
        return seed
    return _mix_word((_mix_word((seed ^ _MIX_2) & _WORD) + _GOLDEN * (stream + 4 * (key + 1))) & _WORD)


def uniform(seed: int, position: int, index: int) -> float:
    """One number in (0, 1): entry `index` of `uniforms`."""
    word = _mix_word((_mix_word((seed + _GOLDEN * (position + 1)) & _WORD) + _GOLDEN * (index + 1)) & _WORD)
    return ((word >> 12) + 0.5) * 2.0**-52


def uniforms(seed: int, position: int, vocab_size: int, device: torch.device | str = "cpu") -> Tensor:
    """One number in (0, 1) for every token id at an absolute position: `(V,)` float64, the same on every device."""
    return _uniforms(seed, position, _token_words(vocab_size, torch.device(device)))


def gumbel(seed: int, position: int, vocab_size: int, device: torch.device | str = "cpu") -> Tensor:
    """Standard Gumbel noise `(V,)` from `uniforms`; the argmax of log p plus it is a draw from p."""
    return _gumbel(uniforms(seed, position, vocab_size, device))


def perturbed(logits: Tensor, seed: int, position: int) -> Tensor:
    """Logits `(V,)` plus `gumbel`, in float64: the largest is a draw from their softmax.

    On the host noise is made for those above minus infinity only, which after most warpers are few. On a device to look
    for them would be to wait for it.
    """
    drawable = (logits > -math.inf).nonzero()[:, 0] if logits.device.type == "cpu" else None
    if drawable is None or len(drawable) == len(logits):
        return logits + gumbel(seed, position, len(logits), logits.device)
    found = logits.to(torch.float64, copy=True)
    found[drawable] += _gumbel(_uniforms(seed, position, _token_words(len(logits), logits.device)[drawable]))
    return found


def draw(law: Tensor, seed: int, position: int) -> int:
    """A token drawn from `law (V,)`, which need not be normalised, with the noise of (seed, position).

    A drafter that samples independently of the target draws node i of a step with
    `draw(q, stream_seed(seed, Stream.DRAFT, i), len(context.tokens))`: every node of every step has noise of its own.
    """
    drawable = law.nonzero()[:, 0]
    if not len(drawable):
        return 0
    noise = _gumbel(_uniforms(seed, position, _token_words(len(law), law.device)[drawable]))
    return int(drawable[(law[drawable].log() + noise).argmax()])


def _uniforms(seed: int, position: int, words: Tensor) -> Tensor:
    """Of token ids by their words."""
    start = _mix_word((seed + _GOLDEN * (position + 1)) & _WORD)
    # 52 bits: with 53 the largest value would round to 1 and its Gumbel noise be infinite.
    return (_shift(_mix(words + _signed(start)), 12).to(torch.float64) + 0.5) * 2.0**-52


def _gumbel(numbers: Tensor) -> Tensor:
    return -torch.log(-torch.log(numbers))


def _signed(word: int) -> int:
    """The int64 with the same bits."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _mix_word(z: int) -> int:
    z = ((z ^ (z >> 30)) * _MIX_1) & _WORD
    z = ((z ^ (z >> 27)) * _MIX_2) & _WORD
    return z ^ (z >> 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's own is arithmetic."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _signed(_MIX_1)
    z = (z ^ _shift(z, 27)) * _signed(_MIX_2)
    return z ^ _shift(z, 31)


@lru_cache(maxsize=8)
def _token_words(vocab_size: int, device: torch.device) -> Tensor:
    return torch.arange(1, vocab_size + 1, dtype=torch.int64, device=device) * _signed(_GOLDEN)
