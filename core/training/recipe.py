"""Options that all parts have: how the target writes and answers prompts, the course of rates. Imports no torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attrs import asdict, field, frozen

from draftmux.generation import Generation
from draftmux.options import option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.training.prompts import Prompt


@frozen
class Answers:
    """How the target answers prompts for training."""

    max_new_tokens: int = option("tokens of an answer at most", default=256, minimum=2)
    sampled: float = option(
        "share of prompts that are answered at `temperature`; the others greedily", default=0.25, minimum=0, maximum=1
    )
    temperature: float = option("of those", default=0.7, minimum=1e-8)
    batch: int = option("answers generated at once", default=32, minimum=1)
    held_out: float = option(
        "share of prompts that are kept for evaluation, by their hash", default=0.05, minimum=0, maximum=1
    )
    answer_seed: int = option("of sampled answers", default=0)

    @property
    def kept(self) -> dict[str, float]:
        """What an answer depends on."""
        names = ("max_new_tokens", "sampled", "temperature", "answer_seed")
        return {name: getattr(self, name) for name in names}

    def of(self, prompt: Prompt) -> Generation:
        """How one prompt is answered: which ones are sampled is up to their hash."""
        sampled = int(prompt.key, 16) // 10_000 % 10_000 < self.sampled * 10_000
        return Generation(
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature if sampled else 0.0,
            seed=self.answer_seed + int(prompt.key[:6], 16),
        )


@frozen
class Magpie:
    """How many prompts are written, and how."""

    count: int = option("prompts to write", default=2000, minimum=1)
    seed: int = option("same seed, same prompts", default=0, minimum=0)
    temperature: float = option(
        "of the target's law; 0 would write one prompt again and again", default=0.8, minimum=0.1, maximum=10
    )
    max_new_tokens: int = option("tokens of a prompt; longer ones are cut", default=512, minimum=1)
    batch: int = option("prompts written at once", default=64, minimum=1)

    def generation(self, number: int) -> Generation:
        """How prompt `number` is written."""
        return Generation(
            max_new_tokens=self.max_new_tokens, temperature=self.temperature, seed=self.seed * 1_000_003 + number
        )


def optimizer_option(default: str) -> Any:
    """Of all parts; which one is better depends on the part."""
    return option(
        "muon: for matrices, with AdamW at a tenth of the rate for the output layer and norms; adamw: for all",
        default=default,
        choices=("adamw", "muon"),
    )


@frozen
class Recipe:
    """How a part is trained: options that all parts have. A subclass may have defaults of its own."""

    steps: int = option("optimizer steps", default=1000, minimum=1)
    optimizer: str = optimizer_option("adamw")
    learning_rate: float = option("at its peak", default=5e-4)
    warmup: int = option("steps up to the peak; then cosine down to a tenth", default=50)
    clip: float = option("norm that gradients are clipped to", default=1.0)
    batch_tokens: int = option("tokens of a batch", default=2048, minimum=1)
    learn: str = option(
        "answers, or all: the prompts' tokens too, meant for prompts that the target wrote itself",
        default="answers",
        choices=("answers", "all"),
    )
    length: int = option("tokens of a sample at most", default=1024, minimum=4)
    precision: str = option("number format of products", default="no", choices=("no", "bf16", "fp16"))
    seed: int = option("of initial weights and of the order of batches", default=0)

    @property
    def sizes(self) -> Sizes:
        """Of batches."""
        return Sizes(self.length, self.batch_tokens)

    @property
    def schedule(self) -> Schedule:
        """Of the loop."""
        return Schedule(self.steps, self.learning_rate, self.warmup, self.clip, self.precision, self.optimizer)

    @property
    def kept(self) -> dict[str, Any]:
        """What another run must have alike to go on with this one's weights: all but its length."""
        return {name: value for name, value in asdict(self).items() if name != "steps"}


@frozen
class Schedule:
    """Steps, rates and limits. `optimizer`: `adamw`, or `muon`, which has AdamW beside it at a tenth of the rate.

    `shares`: with `adamw`, times what the rate is for parameters whose name begins so; 1 for all others.
    """

    steps: int
    learning_rate: float
    warmup: int
    clip: float
    precision: str = "no"
    optimizer: str = "adamw"
    shares: Mapping[str, float] = field(factory=dict)

    def rate(self, step: int) -> float:
        """The learning rate of a step: a ramp, then cosine down to a tenth."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


@frozen
class Sizes:
    """How long a sample may be, how many tokens a batch holds, and how far a head will be unrolled."""

    length: int = 1024
    tokens: int = 2048
    steps: int = 1
