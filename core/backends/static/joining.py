"""Linear layers that read one tensor (q, k and v; gate and up) multiplied as one: fewer and larger products.

Which layers do is seen in a trial pass, so no model's names need to be known. The weights are as many as before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from torch import Tensor

    Joint = Callable[[Tensor], Tensor]


class Joined:
    """The common product of some layers: made when the first of them is called, let go of after the last."""

    def __init__(self, multiply: Joint, widths: Sequence[int]) -> None:
        self.multiply, self.widths = multiply, tuple(widths)
        self._read: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def part(self, index: int, states: Tensor) -> Tensor:
        """Columns of the product that belong to one of the layers."""
        if self._read is not states or index not in self._parts:
            self._read = states
            self._parts = dict(enumerate(self.multiply(states).split(self.widths, -1)))
        found = self._parts.pop(index)
        if not self._parts:
            self._read = None
        return found


class JoinedLinear(nn.Module):
    """One of several layers that are multiplied as one."""

    def __init__(self, linear: nn.Linear, joined: Joined, index: int) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.joint = joined.multiply  # a module, if one of the layers was: what it holds is the model's
        self._joined, self._index = joined, index

    def forward(self, states: Tensor) -> Tensor:
        """`(…, in_features)` to `(…, out_features)`."""
        return self._joined.part(self._index, states)


def readers_of_one(model: Any, fit: Callable[[nn.Module], bool]) -> list[list[nn.Linear]]:
    """Groups of `fit` linear layers that were called with the same tensor, each once, in a trial pass.

    Those with a bias and those without are groups apart. A tensor that is written to in between is another one.
    """
    groups: dict[tuple[int, int, bool], tuple[Tensor, list[nn.Linear]]] = {}  # a tensor is held, so that its id stays

    def note(layer: Any, args: tuple[Tensor, ...]) -> None:
        key = id(args[0]), args[0]._version, layer.bias is None
        groups.setdefault(key, (args[0], []))[1].append(layer)

    hooks = [module.register_forward_pre_hook(note) for module in model.modules() if fit(module)]
    try:
        with torch.no_grad():
            model(input_ids=torch.zeros(1, 2, dtype=torch.int64, device=model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    calls = Counter(id(layer) for _, group in groups.values() for layer in group)
    once = [[layer for layer in group if calls[id(layer)] == 1] for _, group in groups.values()]
    return [group for group in once if len(group) > 1]


def joint(group: Sequence[nn.Linear]) -> nn.Linear:
    """One layer with the outputs of all, one after the other."""
    weight = torch.cat([layer.weight.detach() for layer in group])
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if group[0].bias is not None:
        layer.bias = nn.Parameter(torch.cat([each.bias.detach() for each in group]), requires_grad=False)
    return layer
