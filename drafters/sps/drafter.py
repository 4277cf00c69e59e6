"""Speculative sampling with a draft model (2211.17192, 2302.01318): chains or beam trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.drafters.neural.shape import Draw, Shape
from draftmux.errors import PluginError
from draftmux.options import option
from draftmux.types import Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import Drafter, DraftRequest, Resources
    from draftmux.types import Context, Draft, Emits, Step


@frozen
class Sps:
    """Drafts with a smaller language model: one of `models`, or the target's own first `layers`."""

    model: str | None = option("name of the draft model in `models`", default=None)
    layers: int = option("draft with the target's first layers instead, this many", default=0, minimum=0)
    adapter: str | None = option(
        "with `layers`: folder, or hub id, of a PEFT LoRA that is active while drafting only", default=None
    )
    depth: int = option("drafted nodes on one path at most", default=4, minimum=1, maximum=64)
    top_k: int = option("children of a node, and nodes of a level that get children; 1: chains", default=1, minimum=1)
    max_nodes: int = option("drafted nodes at most", default=32, minimum=1)
    min_confidence: float = option(
        "stop before a token whose law's largest probability is below this", default=0.0, minimum=0.0, maximum=1.0
    )
    draw: Draw = option(
        "coupled: with the target's noise, for exact-match; sampled: with q, for rejection or block", default="coupled"
    )
    self_test: bool = option("compare the draft model with the target on a short text when loading", default=True)

    def __attrs_post_init__(self) -> None:
        if (self.model is None) == (self.layers == 0):
            raise ValueError("give either 'model', a name in `models`, or 'layers', how many of the target's own")
        if self.adapter is not None and not self.layers:
            raise ValueError("'adapter' goes with 'layers': it adapts the target's own layers")
        self.shape()

    def shape(self) -> Shape:
        """Size and law of its drafts."""
        return Shape(self.depth, self.top_k, self.max_nodes, float(self.min_confidence), self.draw)

    @property
    def needs(self) -> Needs:
        """The draft model."""
        return Needs(models=() if self.model is None else (self.model,))

    @property
    def emits(self) -> Emits:
        """Chains or trees, with q if they are sampled."""
        return self.shape().emits

    def uses(self) -> tuple[str, ...]:
        """No other drafter."""
        return ()

    def bind(self, resources: Resources) -> Drafter:
        """Load the draft model; ModelError when it does not fit the target."""
        from draftmux.drafters.sps.bound import BoundSps

        bound = BoundSps.load(self, resources)
        if self.self_test:
            from draftmux.drafters.neural.self_test import check_agreement

            check_agreement(f"sps ({self.model or f'layers: {self.layers}'})", bound, resources)
        return bound

    def begin(self, context: Context) -> Any:
        """Never: there is no model before `bind`."""
        raise PluginError("sps has no model yet; call `bind` and use what it returns")

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Never, likewise."""
        raise PluginError("sps has no model yet; call `bind` and use what it returns")

    def observe(self, state: Any, step: Step) -> None:
        """Nothing to do: committed tokens are in the context."""
