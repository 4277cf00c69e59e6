"""What drafters with a model have in common: options of size and law, and what they are before they are bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.drafters.neural.shape import Draw, Shape
from draftmux.errors import PluginError
from draftmux.options import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import DraftRequest
    from draftmux.types import Context, Draft, Emits, Step


@frozen
class NeuralDrafter:
    """Options that all of them have. A subclass adds `needs`, and `bind`, which loads the model."""

    depth: int = option("drafted nodes on one path at most", default=5, minimum=1, maximum=64)
    top_k: int = option("children of a node, and nodes of a level that get children; 1: chains", default=1, minimum=1)
    max_nodes: int = option("drafted nodes at most", default=32, minimum=1)
    min_confidence: float = option(
        "stop before a token whose law's largest probability is below this", default=0.0, minimum=0.0, maximum=1.0
    )
    draw: Draw = option(
        "coupled: with the target's noise, for exact-match; sampled: with q, for rejection or block", default="coupled"
    )
    self_test: bool = option("compare the model with the target on a short text when loading", default=True)

    def __attrs_post_init__(self) -> None:
        self.shape()

    def shape(self) -> Shape:
        """Size and law of its drafts."""
        return Shape(self.depth, self.top_k, self.max_nodes, float(self.min_confidence), self.draw)

    @property
    def emits(self) -> Emits:
        """Chains or trees, with q if they are sampled."""
        return self.shape().emits

    def uses(self) -> tuple[str, ...]:
        """No other drafter."""
        return ()

    def begin(self, context: Context) -> Any:
        """Never: there is no model before `bind`."""
        raise self._unbound()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Never, likewise."""
        raise self._unbound()

    def observe(self, state: Any, step: Step) -> None:
        """Nothing to do."""

    def _unbound(self) -> PluginError:
        return PluginError(f"{type(self).__name__.lower()} has no model yet; call `bind` and use what it returns")
