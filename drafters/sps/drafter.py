"""Speculative sampling with a draft model (2211.17192, 2302.01318): chains or beam trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.drafters.neural.drafter import NeuralDrafter
from draftmux.options import option
from draftmux.types import Needs

if TYPE_CHECKING:
    from draftmux.protocols import Drafter, Resources


@frozen
class Sps(NeuralDrafter):
    """Drafts with a smaller language model: one of `models`, or the target's own first `layers`."""

    model: str | None = option("name of the draft model in `models`", default=None)
    layers: int = option("draft with the target's first layers instead, this many", default=0, minimum=0)
    adapter: str | None = option(
        "with `layers`: folder, `package:NAME/PATH` or hub id of a PEFT LoRA that is active while drafting only",
        default=None,
    )

    def __attrs_post_init__(self) -> None:
        if (self.model is None) == (self.layers == 0):
            raise ValueError("give either 'model', a name in `models`, or 'layers', how many of the target's own")
        if self.adapter is not None and not self.layers:
            raise ValueError("'adapter' goes with 'layers': it adapts the target's own layers")
        super().__attrs_post_init__()

    @property
    def needs(self) -> Needs:
        """The draft model."""
        return Needs(models=() if self.model is None else (self.model,))

    def bind(self, resources: Resources) -> Drafter:
        """Load the draft model; ModelError when it does not fit the target."""
        from draftmux.drafters.sps.bound import BoundSps

        bound = BoundSps.load(self, resources)
        if self.self_test:
            from draftmux.drafters.neural.self_test import LEAST, LEAST_OF_LAYERS, check_agreement

            what, least = (self.model, LEAST) if self.model else (f"layers: {self.layers}", LEAST_OF_LAYERS)
            check_agreement(f"sps ({what})", bound, resources, least)
        return bound
