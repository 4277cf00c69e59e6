"""How a head is trained: options of `draftmux train eagle3`. Imports no torch."""

from __future__ import annotations

import math

from attrs import frozen

from draftmux.options import option


@frozen
class Sizes:
    """How long a sample may be, how many tokens a batch holds, and how far it will be unrolled."""

    length: int = 1024
    tokens: int = 2048
    steps: int = 5


@frozen
class Recipe:
    """How a head is trained."""

    vocabulary: int = option("tokens of the draft vocabulary: the most frequent of the answers", default=8192)
    steps: int = option("optimizer steps", default=2000, minimum=1)
    learning_rate: float = option("at its peak", default=5e-4)
    warmup: int = option("steps up to the peak; then cosine down to a tenth", default=100)
    unroll: int = option("steps of the training-time test", default=5, minimum=1)
    decay: float = option("weight of each further step", default=0.8)
    clip: float = option("norm that gradients are clipped to", default=0.5)
    batch_tokens: int = option("tokens of a batch", default=2048)
    length: int = option("tokens of a sample at most", default=1024)
    intermediate: int = option("width of the head's MLP; 0: the target's", default=0)
    precision: str = option("no or bf16, as accelerate says it", default="no")
    seed: int = option("of initial weights and of the order of batches", default=0)

    @property
    def sizes(self) -> Sizes:
        """Of batches."""
        return Sizes(self.length, self.batch_tokens, self.unroll)

    def rate(self, step: int) -> float:
        """The learning rate of a step, as a share of the peak."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done)))
