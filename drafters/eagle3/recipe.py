"""How a head is trained: options of `draftmux train eagle3`. Imports no torch."""

from __future__ import annotations

from attrs import frozen

from draftmux.options import option
from draftmux.training.recipe import Schedule, Sizes


@frozen
class Recipe:
    """How a head is trained."""

    vocabulary: int = option(
        "tokens of the draft vocabulary: the most frequent of the answers", default=8192, minimum=1
    )
    steps: int = option("optimizer steps", default=2000, minimum=1)
    optimizer: str = option(
        "muon: for matrices, with AdamW at a tenth of the rate for the output layer and norms; adamw: for all",
        default="muon",
        choices=("muon", "adamw"),
    )
    learning_rate: float = option("at its peak; of adamw alone, take a tenth", default=5e-3)
    warmup: int = option("steps up to the peak; then cosine down to a tenth", default=100)
    unroll: int = option("steps of the training-time test", default=5, minimum=1)
    ramp: float = option("share of the run in which these grow from one to all", default=0.5, minimum=0, maximum=1)
    decay: float = option("weight of each further step", default=0.8)
    clip: float = option("norm that gradients are clipped to", default=1.0)
    batch_tokens: int = option("tokens of a batch", default=2048, minimum=1)
    length: int = option("tokens of a sample at most", default=1024, minimum=4)
    intermediate: int = option("width of the head's MLP; 0: the target's", default=0, minimum=0)
    precision: str = option("number format of products", default="no", choices=("no", "bf16", "fp16"))
    seed: int = option("of initial weights and of the order of batches", default=0)

    def unrolled(self, done: float) -> int:
        """Steps of the training-time test when that share of the run is done."""
        return self.unroll if done >= self.ramp else min(self.unroll, 1 + int(self.unroll * done / self.ramp))

    @property
    def sizes(self) -> Sizes:
        """Of batches."""
        return Sizes(self.length, self.batch_tokens, self.unroll)

    @property
    def schedule(self) -> Schedule:
        """Of the loop."""
        return Schedule(self.steps, self.learning_rate, self.warmup, self.clip, self.precision, self.optimizer)
