"""How a head is trained: options of `draftmux train eagle3`. Imports no torch."""

from __future__ import annotations

from attrs import evolve, frozen

from draftmux.options import option
from draftmux.training.recipe import Recipe, Sizes, optimizer_option


@frozen
class HeadRecipe(Recipe):
    """A head, its draft vocabulary, and how far it is unrolled."""

    steps: int = option("optimizer steps", default=2000, minimum=1)
    optimizer: str = optimizer_option("muon")
    learning_rate: float = option("at its peak; adamw alone wants a lower one", default=5e-3)
    vocabulary: int = option(
        "tokens of the draft vocabulary: the most frequent of the answers", default=8192, minimum=1
    )
    start: str = option("head to go on from, with any draft vocabulary; none: the target's last layer", default="")
    unroll: int = option("steps of the training-time test", default=5, minimum=1)
    ramp: float = option("share of the run in which these grow from one to all", default=0.5, minimum=0, maximum=1)
    decay: float = option("weight of each further step", default=0.8)
    intermediate: int = option("width of the head's MLP; 0: the target's", default=0, minimum=0)

    @property
    def unrolled_sizes(self) -> Sizes:
        """Of batches whose rows are unrolled."""
        return evolve(self.sizes, steps=self.unroll)

    def unrolled(self, done: float) -> int:
        """Steps of the training-time test when that share of the run is done."""
        return self.unroll if done >= self.ramp else min(self.unroll, 1 + int(self.unroll * done / self.ramp))
