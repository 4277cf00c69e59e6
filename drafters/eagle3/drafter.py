"""EAGLE-3 (2503.01840): drafts by a head that reads the target's hidden states; chains and dynamic trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.drafters.eagle3.format import known_taps
from draftmux.drafters.neural.shape import Draw, Shape
from draftmux.errors import PluginError
from draftmux.options import option
from draftmux.types import Needs, Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import Drafter, DraftRequest, Resources
    from draftmux.types import Context, Draft, Emits, Step


@frozen
class Eagle3:
    """Drafts with an EAGLE-3 head: a folder or hub id in the layout of SafeAILab, speculators, SpecForge or others."""

    head: str = option("folder or hub id of the head")
    revision: str | None = option("branch, tag or commit on the hub", default=None)
    taps: list[Tap] = option(
        "where the target's hidden states are read, low to high; by default as the head's config says", default=[]
    )
    depth: int = option("drafted nodes on one path at most", default=5, minimum=1, maximum=64)
    top_k: int = option("children of a node, and nodes of a level that get children; 1: chains", default=8, minimum=1)
    max_nodes: int = option("drafted nodes at most", default=32, minimum=1)
    min_confidence: float = option(
        "stop before a token whose law's largest probability is below this", default=0.0, minimum=0.0, maximum=1.0
    )
    draw: Draw = option(
        "coupled: with the target's noise, for exact-match; sampled: with q, for rejection or block", default="coupled"
    )
    self_test: bool = option("compare the head with the target on a short text when loading", default=True)

    def __attrs_post_init__(self) -> None:
        self.shape()

    def shape(self) -> Shape:
        """Size and law of its drafts."""
        return Shape(self.depth, self.top_k, self.max_nodes, float(self.min_confidence), self.draw)

    @property
    def needs(self) -> Needs:
        """The target's states that the head was trained on."""
        return Needs(taps=tuple(self.taps) or known_taps(self.head, self.revision))

    def fetch(self) -> None:
        """Get the config that says what `needs` is."""
        if not self.taps:
            known_taps(self.head, self.revision, download=True)

    @property
    def emits(self) -> Emits:
        """Chains or trees, with q if they are sampled."""
        return self.shape().emits

    def uses(self) -> tuple[str, ...]:
        """No other drafter."""
        return ()

    def bind(self, resources: Resources) -> Drafter:
        """Load the head; ModelError when it is incomplete, not understood, or made for another target."""
        from draftmux.drafters.eagle3.bound import BoundEagle3

        bound = BoundEagle3.load(self, resources.backend)
        if self.self_test:
            from draftmux.drafters.neural.self_test import check_agreement

            check_agreement(f"eagle3 ({self.head})", bound, resources)
        return bound

    def begin(self, context: Context) -> Any:
        """Never: there is no head before `bind`."""
        raise PluginError("eagle3 has no head yet; call `bind` and use what it returns")

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Never, likewise."""
        raise PluginError("eagle3 has no head yet; call `bind` and use what it returns")

    def observe(self, state: Any, step: Step) -> None:
        """Nothing to do."""
