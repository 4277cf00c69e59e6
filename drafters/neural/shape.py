"""How much a drafter with a model drafts, and how it picks: options that all of them have."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen
from attrs.validators import ge, instance_of

from draftmux.types import Emits

Draw = Literal["coupled", "greedy", "sampled"]


@frozen
class Shape:
    """Size and law of a draft. With `top_k` 1 it is a chain.

    `draw`: `coupled` picks with the noise that the target will pick with (the likeliest token when greedy), for
    verifier exact-match; `greedy` takes the likeliest; `sampled` draws from q and hands q on, for verifiers that weigh.
    """

    depth: int = field(validator=ge(1))
    top_k: int = field(validator=ge(1))
    max_nodes: int = field(validator=ge(1))
    min_confidence: float = field(validator=instance_of(float))
    draw: Draw

    def __attrs_post_init__(self) -> None:
        if self.draw == "sampled" and self.top_k > 1:
            raise ValueError(
                f"'draw: sampled' drafts chains, whose law q is known; set top_k: 1, got {self.top_k}, or draw: coupled"
            )

    @property
    def emits(self) -> Emits:
        """What its drafts look like."""
        return Emits(tree=self.top_k > 1, q=self.draw == "sampled")

    @property
    def knows_confidence(self) -> bool:
        """Whether drafts say how sure they are; a plain chain only takes the likeliest."""
        return self.top_k > 1 or self.min_confidence > 0
