"""How a draft model is distilled: options of `draftmux train draft`. Imports no torch."""

from __future__ import annotations

from attrs import frozen

from draftmux.options import option
from draftmux.training.recipe import Recipe


@frozen
class DraftRecipe(Recipe):
    """A LoRA on the target's first layers."""

    layers: int = option("draft with the target's first layers, this many", default=8, minimum=1)
    rank: int = option("of the LoRA", default=16, minimum=1)
    alpha: int = option("of the LoRA: its product is multiplied by alpha / rank", default=32, minimum=1)
