"""Settings of one request: length, stopping, sampling, logits processing. Data only; `sampling.py` gives it meaning."""

from __future__ import annotations

from typing import Any, Literal

from attrs import Attribute, field, frozen

from draftmux.options import option
from draftmux.protocols import Constraint


def _temperature_rule(_: Any, attribute: Attribute[float], value: float) -> None:
    if value != 0 and not 1e-8 <= value <= 1e4:
        raise ValueError(f"'{attribute.name}' must be 0 (greedy) or between 1e-8 and 1e4: {value}")


@frozen
class Generation:
    """How one request is generated. Defaults decode greedily, 256 tokens at most, until the model's own end token.

    Processors and warpers are transformers' own, in transformers' order, and apply to every node of a draft tree with
    that node's own prefix.
    """

    max_new_tokens: int = option("tokens to generate at most", default=256, minimum=1)
    temperature: float = field(
        default=0.0,
        validator=_temperature_rule,
        kw_only=True,
        metadata={
            "help": "0 decodes greedily; above 0 samples from the law softmax(logits / temperature)",
            "minimum": 0,
        },
    )
    seed: int = option("noise is a function of (seed, position): same seed, same text", default=0, minimum=0)
    top_k: int = option("sample among the k likeliest tokens; 0 switches it off", default=0, minimum=0)
    top_p: float = option(
        "sample within the smallest set of this mass; 1 switches it off", default=1.0, minimum=1e-9, maximum=1
    )
    min_p: float = option(
        "drop tokens below this share of the best one's probability; 0 switches it off",
        default=0.0,
        minimum=0,
        maximum=1,
    )
    typical_p: float = option(
        "locally typical sampling within this mass; 1 switches it off", default=1.0, minimum=1e-9, maximum=1
    )
    repetition_penalty: float = option(
        "divide or multiply the logits of tokens seen so far; 1 switches it off", default=1.0, minimum=1e-3
    )
    frequency_penalty: float = option(
        "subtract this from a token's logit for each time it was generated; 0 switches it off",
        default=0.0,
        minimum=-100,
        maximum=100,
    )
    presence_penalty: float = option(
        "subtract this from the logits of tokens generated so far; 0 switches it off",
        default=0.0,
        minimum=-100,
        maximum=100,
    )
    no_repeat_ngram_size: int = option("never repeat an n-gram of this size; 0 switches it off", default=0, minimum=0)
    bad_words: list[str] = option("texts that must not be generated", default=[])
    bad_word_ids: list[list[int]] = option("token sequences that must not be generated", default=[])
    logit_bias: dict[int, float] = option("added to the logits of these token ids", default={})
    min_new_tokens: int = option("no end token before this many tokens", default=0, minimum=0)
    stop: list[str] = option("texts that end the generation; the text ends before them", default=[])
    stop_ids: list[int] = option("token ids that end the generation, besides the model's own", default=[])
    ignore_eos: bool = option("go on after the model's own end tokens", default=False)
    constraint: Constraint | None = option(
        "only what a grammar allows may be generated: {use: NAME, …}", default=None, types=(Constraint,)
    )
    logprobs: bool = option("report the target's log-probability of every generated token", default=False)
    prompt_format: Literal["auto", "chat", "raw"] = option(
        "chat wraps a text prompt in the model's chat template; auto does so when there is one", default="auto"
    )

    def end_ids(self, eos_ids: frozenset[int]) -> frozenset[int]:
        """Ids that end this request, given the model's own."""
        return frozenset(self.stop_ids) | (frozenset() if self.ignore_eos else eos_ids)

    @property
    def greedy(self) -> bool:
        """Whether the next token is the likeliest one."""
        return self.temperature == 0
