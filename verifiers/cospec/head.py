"""The arbiter's head: from the state at a drafted token to the logit that it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

NARROWER = 4  # how much the hidden layer is


class Head(nn.Module):
    """LayerNorm, a linear layer to a quarter of the width, GELU, a linear layer to one logit; in float32.

    With features they are added to the normed state through a map that begins at zero, so that a new head does not know
    them.
    """

    def __init__(self, size: int, features: int = 0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.features = nn.Linear(features, size, bias=False) if features else None
        self.hidden = nn.Linear(size, max(1, size // NARROWER))
        self.output = nn.Linear(max(1, size // NARROWER), 1)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """First weights."""
        if self.features is not None:
            nn.init.zeros_(self.features.weight)
        nn.init.kaiming_uniform_(self.hidden.weight)
        nn.init.xavier_uniform_(self.output.weight, gain=0.1)
        for layer in (self.hidden, self.output):
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor, features: Tensor | None = None) -> Tensor:
        """Logits `(…)` of states `(…, d)` and features `(…, F)`."""
        normed = self.norm(states.to(self.norm.weight.dtype))
        if self.features is not None:
            if features is None:
                raise ValueError("this head reads features; give them")
            normed = normed + self.features(features.to(normed.dtype))
        return self.output(nn.functional.gelu(self.hidden(normed))).squeeze(-1)  # type: ignore[no-any-return]
