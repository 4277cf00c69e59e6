"""transformers' processors and warpers for one request's settings, in the order of transformers' own `generate`.

Frequency and presence penalties, which transformers lacks, are here. Knows one prefix and its row at a time, so a
processor that keeps state between calls has no place here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers.generation.logits_process as hf
from attrs import field, frozen

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from draftmux.generation import Generation


@frozen(eq=False)
class RuleContext:
    """What processors need to know besides the request's settings."""

    vocab_size: int
    prompt_length: int
    eos_ids: frozenset[int]
    device: torch.device | str = "cpu"
    tokenizer: Any = field(default=None)


@frozen
class CountPenalty:
    """Lowers the logits of generated tokens: `frequency` per occurrence, `presence` once. The prompt does not count.

    Source: the parameters of the same names in the OpenAI API.
    """

    prompt_length: int
    frequency: float
    presence: float

    def __call__(self, prefix: Tensor, row: Tensor) -> Tensor:
        """`prefix (1, T)`, `row (1, V)`."""
        counts = torch.bincount(prefix[0, self.prompt_length :], minlength=row.shape[-1]).to(row.dtype)
        return row - self.frequency * counts - self.presence * (counts > 0)


def processors(g: Generation, c: RuleContext) -> list[Any]:
    """What looks at the prefix, in order; RequestError when a setting does not fit the vocabulary."""
    found: list[Any] = []
    _check_ids("logit_bias", g.logit_bias, c.vocab_size)
    if g.logit_bias:
        found.append(hf.SequenceBiasLogitsProcessor({(token,): float(bias) for token, bias in g.logit_bias.items()}))
    if g.repetition_penalty != 1:
        found.append(hf.RepetitionPenaltyLogitsProcessor(g.repetition_penalty))
    if g.frequency_penalty or g.presence_penalty:
        found.append(CountPenalty(c.prompt_length, g.frequency_penalty, g.presence_penalty))
    if g.no_repeat_ngram_size:
        found.append(hf.NoRepeatNGramLogitsProcessor(g.no_repeat_ngram_size))
    if bad_words := _bad_words(g, c):
        found.append(hf.NoBadWordsLogitsProcessor(bad_words, eos_token_id=sorted(c.eos_ids) or None))
    ends = sorted(g.end_ids(c.eos_ids))
    _check_ids("stop_ids", g.stop_ids, c.vocab_size)
    if g.min_new_tokens and ends:
        found.append(
            hf.MinNewTokensLengthLogitsProcessor(c.prompt_length, g.min_new_tokens, ends, device=str(c.device))
        )
    return found


def warpers(g: Generation) -> list[Any]:
    """What looks at the logits alone, in order; nothing when greedy."""
    found: list[Any] = []
    if g.greedy:
        return found
    if g.temperature != 1:
        found.append(hf.TemperatureLogitsWarper(g.temperature))
    if g.top_k:
        found.append(hf.TopKLogitsWarper(g.top_k))
    if g.top_p < 1:
        found.append(hf.TopPLogitsWarper(g.top_p))
    if g.min_p > 0:
        found.append(hf.MinPLogitsWarper(g.min_p))
    if g.typical_p < 1:
        found.append(hf.TypicalLogitsWarper(g.typical_p))
    return found


def _bad_words(g: Generation, c: RuleContext) -> list[Sequence[int]]:
    if any(not word for word in g.bad_word_ids):
        raise RequestError("bad_word_ids holds an empty list, which bans nothing; remove it")
    words: list[Sequence[int]] = [*g.bad_word_ids, *_word_ids(g.bad_words, c.tokenizer)]
    _check_ids("bad_word_ids", [token for word in words for token in word], c.vocab_size)
    for end in [word[0] for word in words if len(word) == 1 and word[0] in c.eos_ids]:
        raise RequestError(f"bad words hold the end token {end}; use ignore_eos or min_new_tokens instead")
    return words


def _check_ids(option: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(f"{option} names token {token}; the target's ids are 0 to {vocab_size - 1}")


def _word_ids(words: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Both spellings of each word, at the start of a text and after a space: tokenizers give them different ids."""
    if words and tokenizer is None:
        raise RequestError("bad_words needs a tokenizer, and this backend has none; use bad_word_ids")
    if "" in words:
        raise RequestError("bad_words holds an empty text, which bans nothing; remove it")
    spellings = [form for word in words for form in (word, " " + word)]
    return [tokenizer(form, add_special_tokens=False)["input_ids"] for form in spellings]
