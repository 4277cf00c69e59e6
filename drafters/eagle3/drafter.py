"""EAGLE-3 (2503.01840): drafts by a head that reads the target's hidden states; chains and dynamic trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from draftmux.drafters.eagle3.format import known_taps
from draftmux.drafters.neural.drafter import NeuralDrafter
from draftmux.options import option
from draftmux.types import Needs, Tap

if TYPE_CHECKING:
    from draftmux.protocols import Drafter, Resources


@frozen
class Eagle3(NeuralDrafter):
    """Drafts with an EAGLE-3 head: a folder or hub id in the layout of SafeAILab, speculators, SpecForge or others."""

    head: str = option("folder or hub id of the head")
    revision: str | None = option("branch, tag or commit on the hub", default=None)
    taps: list[Tap] = option(
        "where the target's hidden states are read, low to high; by default as the head's config says", default=[]
    )
    top_k: int = option("children of a node, and nodes of a level that get children; 1: chains", default=8, minimum=1)

    @property
    def needs(self) -> Needs:
        """The target's states that the head was trained on."""
        return Needs(taps=tuple(self.taps) or known_taps(self.head, self.revision))

    def fetch(self) -> None:
        """Get the config that says what `needs` is."""
        if not self.taps:
            known_taps(self.head, self.revision, download=True)

    def bind(self, resources: Resources) -> Drafter:
        """Load the head; ModelError when it is incomplete, not understood, or made for another target."""
        from draftmux.drafters.eagle3.bound import BoundEagle3

        bound = BoundEagle3.load(self, resources.backend)
        if self.self_test:
            from draftmux.drafters.neural.self_test import check_agreement

            check_agreement(f"eagle3 ({self.head})", bound, resources)
        return bound
