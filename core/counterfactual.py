"""What a draft would have had accepted, read off the tokens that were committed later.

Exact where the text does not depend on the drafter: greedily, and wherever the verifier follows the target's own picks
(2510.20064). A draft that ends inside what is committed so far is known at once; others wait for more tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from draftmux.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftmux.types import Draft


@define(eq=False)
class Walk:
    """A draft on its way along the text: the node it has come to, and how deep that is."""

    arm: int
    draft: Draft
    node: int = ROOT
    depth: int = 0

    def follow(self, tokens: Sequence[int]) -> bool:
        """Go along committed tokens; whether the draft's length is known now."""
        for token in tokens:
            if self.node not in self.draft.siblings:  # a leaf, or the root of a draft without nodes
                return True
            child = self.draft.children.get((self.node, token))
            if child is None:
                return True
            self.node, self.depth = child, self.depth + 1
        return self.node not in self.draft.siblings


@define(eq=False)
class Counterfactuals:
    """Drafts of one sequence that nobody has scored, each from the place where it was drafted."""

    walks: list[Walk] = field(factory=list)

    def add(self, arm: int, draft: Draft) -> None:
        """A draft for the tokens that come next."""
        self.walks.append(Walk(arm, draft))

    def follow(self, tokens: Sequence[int]) -> Iterator[Walk]:
        """Tokens were committed: the walks of all drafts that are known to their end now."""
        waiting: list[Walk] = []
        ended: list[Walk] = []
        for walk in self.walks:
            (ended if walk.follow(tokens) else waiting).append(walk)
        self.walks = waiting
        yield from ended
