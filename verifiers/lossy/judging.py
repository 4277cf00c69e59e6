"""What the lossy rules share: the law that they weigh a drafted token by, and the choice among accepted branches.

Knows no thresholds, and like every verifier nothing of end tokens and lengths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from draftmux.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from draftmux.sampling import Sampler
    from draftmux.types import Draft

TINY = 1e-30  # keeps 0 log 0 at 0


def open_law(node: int, sampler: Sampler) -> Tensor:
    """The target's law `(V,)` after `node` before a token is chosen, bans and penalties of the request included.

    Sampling it is p. At temperature 0, where p is one-hot, it is the softmax of the processed logits (temperature 1;
    top-k, top-p and min-p do nothing when greedy). After a node that nothing can follow it holds no token above 0, or
    is of no consequence.
    """
    law = sampler.p(node)  # also when greedy: it notes a node that nothing can follow
    return sampler.logits(node).softmax(-1) if sampler.rule.greedy else law


def entropy(law: Tensor) -> Tensor:
    """`-sum p log p` in nats, of a law or of some of its entries."""
    return -(law * law.clamp_min(TINY).log()).sum()


def longest(
    draft: Draft, law_after: Callable[[int], Tensor], stands: Callable[[Tensor, Tensor], Tensor]
) -> tuple[int, ...]:
    """The longest branch all of whose tokens stand; of equally long ones that of the largest sum of log p.

    `stands(law (V,), p (C,))` says which of C children with these probabilities stand; one with p = 0 never does.
    """
    reached = {ROOT: (0, 0.0)}  # node -> depth, sum of log p
    for parent, children in draft.siblings.items():
        if parent in reached:
            depth, total = reached[parent]
            law = law_after(parent)
            chances = law[draft.tokens[children].tolist()]
            for node, p, good in zip(children, chances.tolist(), stands(law, chances).tolist(), strict=True):
                if good and p > 0:
                    reached[node] = (depth + 1, total + math.log(p))
    return tuple(draft.path_to(max(reached, key=lambda node: reached[node])))
