"""How the target answers prompts for training: options that all trained parts have. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.generation import Generation
from draftmux.options import option

if TYPE_CHECKING:
    from draftmux.training.prompts import Prompt


@frozen
class Answers:
    """How the target answers prompts for training."""

    max_new_tokens: int = option("tokens of an answer at most", default=256, minimum=2)
    sampled: float = option("share of prompts that are answered at `temperature`; the others greedily", default=0.25)
    temperature: float = option("of those", default=0.7)
    batch: int = option("answers generated at once", default=32, minimum=1)
    held_out: float = option("share of prompts that are kept for evaluation, by their hash", default=0.05)
    answer_seed: int = option("of sampled answers", default=0)

    def of(self, prompt: Prompt) -> Generation:
        """How one prompt is answered: which ones are sampled is up to their hash."""
        sampled = int(prompt.key, 16) // 10_000 % 10_000 < self.sampled * 10_000
        return Generation(
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature if sampled else 0.0,
            seed=self.answer_seed + int(prompt.key[:6], 16),
        )
