"""How a draft model is distilled: options of `draftmux train draft`. Imports no torch."""

from __future__ import annotations

from attrs import frozen

from draftmux.options import option
from draftmux.training.recipe import Schedule, Sizes


@frozen
class Recipe:
    """A LoRA on the target's first layers."""

    layers: int = option("draft with the target's first layers, this many", default=8, minimum=1)
    rank: int = option("of the LoRA", default=16, minimum=1)
    alpha: int = option("of the LoRA: its product is multiplied by alpha / rank", default=32, minimum=1)
    steps: int = option("optimizer steps", default=1000, minimum=1)
    learning_rate: float = option("at its peak", default=5e-4)
    warmup: int = option("steps up to the peak; then cosine down to a tenth", default=50)
    clip: float = option("norm that gradients are clipped to", default=1.0)
    batch_tokens: int = option("tokens of a batch", default=2048, minimum=1)
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
        return Schedule(self.steps, self.learning_rate, self.warmup, self.clip, self.precision)
