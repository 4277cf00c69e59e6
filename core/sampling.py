"""The one place where the target's logits become its next token: processors, warpers, noise, tie-break.

Every tree node is processed with its own prefix (committed tokens plus the path to the node), so penalties and bans
mean what they mean in plain decoding. Noise is a pure function of (seed, position, token id): drawing
argmax(log p + Gumbel noise) gives the same text for the same seed, whatever the drafter, the batch or the step borders
(Daliri, Musco, Suresh, "Coupling without Communication and Drafter-Invariant Speculative Decoding", 2024).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import transformers.generation.logits_process as hf
from attrs import define, field, frozen

from draftmux.errors import DeadEndError, RequestError
from draftmux.tree import ROOT

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.generation import Generation
    from draftmux.types import Context, Draft, Scores

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


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


def uniforms(seed: int, position: int, vocab_size: int, device: torch.device | str = "cpu") -> Tensor:
    """One number in (0, 1) for every token id at an absolute position: `(V,)` float64, the same on every device."""
    start = _mix_word((seed + _GOLDEN * (position + 1)) & _WORD)
    words = _mix(_token_words(vocab_size, torch.device(device)) + _signed(start))
    # 52 bits: with 53 the largest value would round to 1 and its Gumbel noise be infinite.
    return (_shift(words, 12).to(torch.float64) + 0.5) * 2.0**-52


def gumbel(seed: int, position: int, vocab_size: int, device: torch.device | str = "cpu") -> Tensor:
    """Standard Gumbel noise `(V,)` from `uniforms`."""
    return -torch.log(-torch.log(uniforms(seed, position, vocab_size, device)))


@frozen(eq=False)
class SamplingRule:
    """How one request turns logits into a token: its settings, and transformers' processors built from them."""

    greedy: bool
    seed: int
    processors: tuple[Any, ...]  # look at the prefix
    warpers: tuple[Any, ...]  # look at the logits alone

    @classmethod
    def build(cls, generation: Generation, context: RuleContext) -> SamplingRule:
        """Build the processors; RequestError when a setting does not fit the vocabulary or needs a tokenizer."""
        try:
            processors = tuple(_processors(generation, context))
            warpers = () if generation.greedy else tuple(_warpers(generation))
        except (TypeError, ValueError) as error:  # transformers' own checks
            raise RequestError(f"a sampling setting is not possible: {error}") from error
        return cls(generation.greedy, generation.seed, processors, warpers)

    def at(self, context: Context, draft: Draft, scores: Scores) -> Sampler:
        """The sampler of one step of one sequence."""
        return Sampler(self, context, draft, scores)


@frozen(eq=False)
class RuleContext:
    """What processors need to know besides the request's settings."""

    vocab_size: int
    prompt_length: int
    eos_ids: frozenset[int]
    device: torch.device | str
    tokenizer: Any = None


def _processors(g: Generation, c: RuleContext) -> list[Any]:
    """Prefix-dependent processors, in the order transformers' own `generate` applies them."""
    found: list[Any] = []
    _check_ids("logit_bias", g.logit_bias, c.vocab_size)
    bad_words = [*g.bad_word_ids, *_word_ids(g.bad_words, c.tokenizer)]
    _check_ids("bad_word_ids", [token for word in bad_words for token in word], c.vocab_size)
    for end in [word[0] for word in bad_words if len(word) == 1 and word[0] in c.eos_ids]:
        raise RequestError(f"bad words hold the end token {end}; use ignore_eos or min_new_tokens instead")
    if g.logit_bias:
        found.append(hf.SequenceBiasLogitsProcessor({(token,): float(bias) for token, bias in g.logit_bias.items()}))
    if g.repetition_penalty != 1:
        found.append(hf.RepetitionPenaltyLogitsProcessor(g.repetition_penalty))
    if g.no_repeat_ngram_size:
        found.append(hf.NoRepeatNGramLogitsProcessor(g.no_repeat_ngram_size))
    if bad_words:
        found.append(hf.NoBadWordsLogitsProcessor(bad_words, eos_token_id=sorted(c.eos_ids) or None))
    ends = sorted(g.end_ids(c.eos_ids))
    if g.min_new_tokens and ends:
        found.append(
            hf.MinNewTokensLengthLogitsProcessor(c.prompt_length, g.min_new_tokens, ends, device=str(c.device))
        )
    return found


def _warpers(g: Generation) -> list[Any]:
    """Prefix-independent warpers, in transformers' order."""
    found: list[Any] = []
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


def _check_ids(option: str, ids: Any, vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(f"{option} names token {token}; the target's ids are 0 to {vocab_size - 1}")


def _word_ids(words: list[str], tokenizer: Any) -> list[list[int]]:
    """Both spellings of each word, at the start of a text and after a space: tokenizers give them different ids."""
    if words and tokenizer is None:
        raise RequestError("bad_words needs a tokenizer, and this backend has none; use bad_word_ids")
    if "" in words:
        raise RequestError("bad_words holds an empty text, which bans nothing; remove it")
    spellings = [form for word in words for form in (word, " " + word)]
    return [tokenizer(form, add_special_tokens=False)["input_ids"] for form in spellings]


@define(eq=False)
class Sampler:
    """The target's law at the rows of one scored draft. Nodes are numbered as in the draft; -1 is the root."""

    rule: SamplingRule
    context: Context
    draft: Draft
    scores: Scores
    _best: list[int] | None = field(default=None, init=False)
    _processed: dict[int, Tensor] = field(factory=dict, init=False)

    def pick(self, node: int) -> int:
        """The token plain decoding would put after `node`: the likeliest (lowest id on ties), or the seeded draw."""
        if self.rule.greedy and not self.rule.processors:
            return self._raw_best(node)
        logits = self.logits(node)
        if not self.rule.greedy:
            logits = logits + gumbel(self.rule.seed, self.position(node), len(logits), logits.device)
        value, token = logits.max(-1)
        self._check(float(value), node)
        return int(token)

    def logits(self, node: int) -> Tensor:
        """Processed logits `(V,)` after `node`, in float32 or better; softmax of them is p."""
        if node not in self._processed:
            self._processed[node] = self._process(node)
        return self._processed[node]

    def logprob(self, node: int, token: int) -> float:
        """The target's own log-probability of `token` after `node`, before processors and warpers."""
        return float(_upcast(self.scores.logits[node + 1]).log_softmax(-1)[token])

    def position(self, node: int) -> int:
        """Absolute index that the token after `node` will have."""
        depth = 0 if node == ROOT else int(self.draft.depths[node])
        return len(self.context.tokens) + depth

    def _raw_best(self, node: int) -> int:
        if self._best is None:
            values, tokens = self.scores.logits.max(-1)
            # One copy from the device for all rows; a row without a finite best shows as -1.
            self._best = torch.where(values.isfinite(), tokens, -1).tolist()
        token = self._best[node + 1]
        if token < 0:
            self._check(float("nan"), node)
        return token

    def _process(self, node: int) -> Tensor:
        row = _upcast(self.scores.logits[node + 1])[None]  # (1, V)
        if self.rule.processors:
            prefix = self._prefix(node).to(row.device)
            for processor in self.rule.processors:
                row = processor(prefix, row)
        for warper in self.rule.warpers:
            row = warper(None, row)
        return row[0]

    def _prefix(self, node: int) -> Tensor:
        """Ids before the token after `node`: committed, then the path. `(1, T + depth)`."""
        path = self.draft.tokens[self.draft.path_to(node)]
        committed = torch.from_numpy(self.context.tokens.copy())
        return torch.cat((committed, torch.from_numpy(path)))[None]

    def _check(self, best: float, node: int) -> None:
        if not torch.isfinite(torch.tensor(best)):
            raise DeadEndError(
                f"request {self.context.request_id}: no token can follow position {self.position(node) - 1}: the best "
                f"logit is {best}; either bans leave nothing, or the model overflows its dtype (try float32)"
            )


def _upcast(row: Tensor) -> Tensor:
    return row if row.dtype == torch.float64 else row.to(torch.float32)
