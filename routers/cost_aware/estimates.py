"""How far drafts are likely to be accepted, learned from those that were: by kind of place, branches and depth.

Knows nothing of drafters, costs or requests. A hazard is the share of drafts accepted at a depth among those accepted
up to the depth before; with few of a kind it leans on all kinds together, and those on what is believed beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field, frozen

from draftmux.pruning import ranks
from draftmux.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from draftmux.types import Draft

BINS = 10  # of a drafter's confidence
BELIEVED = 0.6  # hazard of a draft of which nothing is known
OWN, COMMON = 4.0, 2.0  # drafts that what all kinds say, and what is believed, count for
KEEP = 0.99  # what a draft counts one draft of its kind later, for texts that change


@define(eq=False)
class Estimates:
    """Of one drafter: `kinds` kinds of places, drafts of up to `branches[i]` branches, `depth` tokens deep."""

    kinds: int
    branches: Sequence[int]
    depth: int
    reached: NDArray[np.float64] = field(init=False)  # (kinds, branches, depth)
    accepted: NDArray[np.float64] = field(init=False)
    drafts: NDArray[np.float64] = field(init=False)  # (kinds, branches, depth): whose nodes up to there are known
    nodes: NDArray[np.float64] = field(init=False)  # (kinds, branches, depth): their sum
    tried: NDArray[np.float64] = field(init=False)  # (bins,): nodes by confidence whose parents the text went along
    right: NDArray[np.float64] = field(init=False)  # those that it went along too

    def __attrs_post_init__(self) -> None:
        shape = (self.kinds, len(self.branches), self.depth)
        self.reached, self.accepted, self.nodes = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.drafts = np.zeros(shape)
        self.tried, self.right = np.zeros(BINS), np.zeros(BINS)

    def learn(self, kind: int, seen: Seen) -> None:
        """One more draft."""
        for table in (self.reached, self.accepted, self.nodes, self.drafts):
            table[kind] *= KEEP
        end = slice(len(seen.nodes))
        self.reached[kind, end] += seen.reached
        self.accepted[kind, end] += seen.accepted
        self.nodes[kind, end] += seen.nodes
        self.drafts[kind, end] += seen.sized
        if seen.tried is not None and seen.right is not None:
            self.tried, self.right = KEEP * self.tried + seen.tried, KEEP * self.right + seen.right

    def chances(self, draft: Draft) -> NDArray[np.float64]:
        """`(N,)`: how likely the text goes along with each node of a draft, by what such confidence has been worth."""
        assert draft.confidence is not None
        own = _bins(draft.confidence)
        found = (self.right[own] + OWN * draft.confidence) / (self.tried[own] + OWN)
        for node, parent in enumerate(draft.parents.tolist()):
            found[node] *= found[parent] if parent != ROOT else 1.0
        return found

    def survival(self, kind: int) -> NDArray[np.float64]:
        """`(branches, depth)`: the chance that a draft is accepted that far."""
        common = self.accepted.sum(0) + COMMON * BELIEVED, self.reached.sum(0) + COMMON
        hazards = (self.accepted[kind] + OWN * common[0] / common[1]) / (self.reached[kind] + OWN)
        survival: NDArray[np.float64] = np.cumprod(hazards, axis=1)
        return survival

    def sizes(self, kind: int) -> NDArray[np.float64]:
        """`(branches, depth)`: nodes of a draft cut there; those of one full branch where nothing was seen."""
        believed = np.arange(1, self.depth + 1.0)
        sizes: NDArray[np.float64] = (self.nodes[kind] + believed) / (self.drafts[kind] + 1)
        return np.maximum.accumulate(sizes, axis=1)  # the deeper ones may be others' means

    def start_from(self, other: Estimates, most: float) -> None:
        """Believe beforehand what another one has seen, as up to `most` drafts of every kind."""
        share = np.minimum(1, most / np.maximum(other.drafts.max(-1, keepdims=True), 1e-9))
        self.reached, self.accepted, self.nodes, self.drafts = (
            table * share for table in (other.reached, other.accepted, other.nodes, other.drafts)
        )
        known = np.minimum(1, most / np.maximum(other.tried, 1e-9))
        self.tried, self.right = other.tried * known, other.right * known


@frozen(eq=False)
class Seen:
    """What one draft taught: by width and depth whether it was reached and accepted, and its nodes, `(widths, depth)`,
    where `sized (depth,)` says that they are known; if its drafter said how sure it was, nodes by that: those whose
    parents the text went along, and those it did."""

    reached: NDArray[np.bool_]
    accepted: NDArray[np.bool_]
    nodes: NDArray[np.float64]
    sized: NDArray[np.bool_]
    tried: NDArray[np.int64] | None = None
    right: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, draft: Draft, path: Sequence[int], branches: int, depth: int, estimates: Estimates) -> Seen:
        """A draft that was to have up to `branches` branches and `depth` levels: `path` are the nodes that the text
        went along. An empty one was not accepted at depth 1."""
        rank, levels = ranks(draft), np.arange(1, estimates.depth + 1)
        widths = np.array([width for width in estimates.branches if width <= branches])[:, None]
        lengths = (rank[list(path)] < widths).sum(1)[:, None]
        reached, accepted = levels <= np.minimum(lengths + 1, depth), levels <= np.minimum(lengths, depth)
        # Of a draft that might have gone deeper it is not known how many nodes it would have had there.
        sized = (levels <= depth) | (draft.depths.max(initial=0) < depth)
        nodes = sized * ((rank < widths).astype(np.float64) @ (draft.depths[:, None] <= levels))
        if draft.confidence is None:
            return cls(reached, accepted, nodes, sized)
        bins = _bins(draft.confidence)
        tried = np.bincount(bins[np.isin(draft.parents, [ROOT, *path])], minlength=BINS)
        right = np.bincount(bins[list(path)], minlength=BINS)
        return cls(reached, accepted, nodes, sized, tried, right)


def _bins(confidence: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.minimum(confidence * BINS, BINS - 1).astype(np.int64)
