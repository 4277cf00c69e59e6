"""Plain decoding by the book: one token after the other, the whole prefix each time, in plain Python.

It shares no loop, cache, noise, stop or text code with the engine, so that both can only agree by being right. The
processors are transformers' own in both; comparing them with transformers' `generate` is a test of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field, frozen

from draftmux.generation import Generation
from draftmux.sampling import RuleContext, SamplingRule

if TYPE_CHECKING:
    from draftmux.backends.scripted import Law

WORD = (1 << 64) - 1
UNFINISHED = "\ufffd"
BEYOND = 10  # tokens after the end that an oracle needs to put the end inside an accepted block


@frozen
class Ask:
    """One request: prompt ids, settings, and an id that keys what seeded drafters and routers do."""

    tokens: tuple[int, ...]
    generation: Generation = field(factory=Generation)
    request_id: str = "request"


@define
class Expected:
    """What plain decoding gives. `truth` goes on `BEYOND` tokens after the end, prompt included.

    `wholes[n]` is the text of the first n tokens as far as its characters are complete. `failed`: no token could
    follow at some point before the end.
    """

    truth: list[int]
    tokens: tuple[int, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    logprobs: list[float] = field(factory=list)
    wholes: list[str] = field(factory=lambda: [""])
    failed: bool = False


def mix(z: int) -> int:
    """The finaliser of SplitMix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def uniform(seed: int, position: int, token: int) -> float:
    """u(seed, position, token) in (0, 1), one number at a time."""
    golden = 0x9E3779B97F4A7C15
    word = mix((mix((seed + golden * (position + 1)) & WORD) + golden * (token + 1)) & WORD)
    return ((word >> 12) + 0.5) * 2.0**-52


def expect(ask: Ask, target: Any, law: Law) -> Expected:
    """Decode `ask` with `law`; `target` gives vocabulary, end tokens, longest sequence and tokenizer."""
    loop = _Loop(ask, target, law)
    expected = Expected(list(ask.tokens))
    limit, longest = loop.limit, target.max_length or math.inf
    while len(expected.truth) < min(longest, len(ask.tokens) + limit + BEYOND):
        token = loop.pick(expected.truth)
        if token is None:
            expected.failed = expected.finish_reason is None
            break
        if expected.finish_reason is None:
            expected.logprobs.append(loop.logprob(expected.truth, token))
        expected.truth.append(token)
        if expected.finish_reason is None:
            loop.end(expected)
    return expected


@frozen(eq=False)
class _Loop:
    ask: Ask
    target: Any
    law: Law

    @property
    def limit(self) -> int:
        """Tokens at most."""
        room = (self.target.max_length or math.inf) - len(self.ask.tokens)
        return int(min(self.ask.generation.max_new_tokens, room))

    def pick(self, prefix: list[int]) -> int | None:
        """The next token; the lowest id on ties; None when nothing is left."""
        logits, g = self._processed(prefix), self.ask.generation
        if not g.greedy:
            noise = [-math.log(-math.log(uniform(g.seed, len(prefix), token))) for token in range(len(logits))]
            logits = [logit + more for logit, more in zip(logits, noise, strict=True)]
        best = max(range(len(logits)), key=lambda token: (logits[token], -token))
        return best if math.isfinite(logits[best]) else None

    def logprob(self, prefix: list[int], token: int) -> float:
        """Of the law itself, before processors."""
        logits = self.law(tuple(prefix))
        top = max(logits)
        return logits[token] - top - math.log(sum(math.exp(logit - top) for logit in logits))

    def end(self, expected: Expected) -> None:
        """Take note of the newest token, and of the end if it is one."""
        new = expected.truth[len(self.ask.tokens) :]
        text = self._decode(new)
        expected.wholes.append(expected.wholes[-1] if text.endswith(UNFINISHED) else text)
        stopped = self._first_stop(expected.wholes[-1])
        if new[-1] in self._ends() or stopped is not None:
            expected.finish_reason = "stop"
        elif len(new) == self.limit:
            expected.finish_reason = "length"
        if expected.finish_reason is not None:
            # Without a stop text the end writes out what is left, unfinished characters included.
            text = text if stopped is None else expected.wholes[-1]
            expected.tokens, expected.text = tuple(new), text[: self._first_stop(text)]

    def _ends(self) -> set[int]:
        own = set() if self.ask.generation.ignore_eos else set(self.target.eos_ids)
        return own | set(self.ask.generation.stop_ids)

    def _first_stop(self, text: str) -> int | None:
        found = [text.find(stop) for stop in self.ask.generation.stop if stop in text]
        return min(found) if found else None

    def _decode(self, ids: Sequence[int]) -> str:
        if self.target.tokenizer is None:
            return ""
        return str(self.target.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _processed(self, prefix: list[int]) -> list[float]:
        import torch

        context = RuleContext(
            self.target.vocab_size, len(self.ask.tokens), self.target.eos_ids, "cpu", self.target.tokenizer
        )
        rule = SamplingRule.build(self.ask.generation, context)
        row = torch.tensor([list(self.law(tuple(prefix)))], dtype=torch.float64)
        for processor in rule.processors:
            row = processor(torch.tensor([prefix]), row)
        if rule.constraint is not None:
            row = row.masked_fill(~torch.from_numpy(self._allowed(rule.constraint, prefix)), -math.inf)
        for warper in rule.warpers:
            row = warper(None, row)
        return row[0].tolist()

    def _allowed(self, state: Any, prefix: list[int]) -> Any:
        """What the constraint lets follow, walked from its start for every token."""
        for token in prefix[len(self.ask.tokens) :]:
            state = state and state.advance(token)
        return np.zeros(self.target.vocab_size, dtype=np.bool_) if state is None else state.allowed()
