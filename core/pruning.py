"""Smaller drafts out of larger ones: what is left without some nodes, and what fewer branches would have held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve

from draftmux.tree import ROOT
from draftmux.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from draftmux.types import Budget


def only(draft: Draft, nodes: Sequence[int]) -> Draft:
    """Some of its nodes, ascending, the parents of each among them. Without q: a sampled tree cannot be cut."""
    if len(nodes) == len(draft):
        return draft
    place = {ROOT: ROOT, **{node: at for at, node in enumerate(nodes)}}
    sources = None if draft.sources is None else tuple(draft.sources[node] for node in nodes)
    kept = list(nodes)
    confidence = None if draft.confidence is None else draft.confidence[kept]
    return Draft(draft.tokens[kept], [place[int(draft.parents[node])] for node in kept], None, sources, confidence)


def ranks(draft: Draft) -> NDArray[np.int64]:
    """Of every node how many branches there were when it came, but one: `(N,)` from 0.

    Where branches are drafted one after the other, as copies are, nodes below a rank are what a draft of so many
    branches would have held. Trees that grow level by level have their best branches among low ranks, no more.
    """
    rank = np.zeros(len(draft), dtype=np.int64)
    inner: set[int] = set()
    leaves = 0
    for node, parent in enumerate(draft.parents.tolist()):
        leaves += parent in inner or parent == ROOT
        inner.add(parent)
        rank[node] = leaves - 1
    return rank


def within(draft: Draft, budget: Budget) -> Draft:
    """The nodes of a draft that a smaller budget would have left, without q, if its branches came one by one."""
    able = (draft.depths <= budget.max_depth) & (ranks(draft) < budget.max_branches)
    kept = np.flatnonzero(able).tolist()
    return only(evolve(draft, q=None), kept[: budget.max_nodes])
