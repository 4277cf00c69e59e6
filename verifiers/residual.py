"""What is left of the target's law once a drafted token was refused. Shared by the rules that weigh p against q."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def excess(p: Tensor, q: Tensor, weight: float = 1.0) -> Tensor:
    """`(weight p - q)+`, `(V,)`: the mass of p that drafts from q leave uncovered."""
    return (weight * p - q).clamp_min(0)


def normalised(law: Tensor, otherwise: Tensor) -> Tensor:
    """`law (V,)` with mass 1; `otherwise` where it has none, which only rounding can bring about."""
    mass = law.sum()
    return law / mass if float(mass) > 0 else otherwise
