"""What is left of the target's law once a drafted token was refused. Shared by the rules that weigh p against q."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def ratio(p: Tensor, q: Tensor, token: int) -> float:
    """p/q of a drafted token; 0 where p rules it out, whatever is left of a tiny q in p's number format."""
    return float(p[token] / q[token]) if float(p[token]) > 0 else 0.0


def excess(p: Tensor, q: Tensor, weight: float = 1.0) -> Tensor:
    """`(weight p - q)+`, `(V,)`: the mass of p that drafts from q leave uncovered."""
    return (weight * p - q).clamp_min(0)


def normalised(law: Tensor, otherwise: Tensor) -> Tensor:
    """`law (V,)` with mass 1; `otherwise` where it has none, which only rounding can bring about."""
    mass = law.sum()
    return (law / mass).where(mass > 0, otherwise)  # without asking the device which
