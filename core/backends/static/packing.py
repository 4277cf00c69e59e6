"""Weights of linear layers, packed once for oneDNN. Without this every pass reorders them again.

`docs/bench/linear_layers.py` measures what that costs.
"""

from __future__ import annotations

import ctypes
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard
from weakref import WeakValueDictionary

import torch
from torch import nn

from draftmux.backends.static.joining import Joined, JoinedLinear, joint, readers_of_one
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

ROWS = 64  # what weights are packed for; the layout serves fewer and more rows as well


class PackedLinear(nn.Module):
    """A linear layer in oneDNN's own weight layout. Inference only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self.bias = linear.bias
        self.number = next(_numbers)
        _layers[self.number] = self

    @property
    def weight(self) -> Tensor:
        """The packed weight: its shape and dtype can be asked for, its numbers cannot."""
        return self.packed  # type: ignore[no-any-return]

    def forward(self, states: Tensor) -> Tensor:
        """`(…, in_features)` to `(…, out_features)`."""
        if torch.compiler.is_compiling():
            return torch.ops.draftmux.linear(states, self.number, self.out_features)  # type: ignore[no-any-return]
        return torch.ops.mkldnn._linear_pointwise(states, self.packed, self.bias, "none", [], "")  # type: ignore[no-any-return]

    def _apply(self, fn: Any, recurse: bool = True) -> PackedLinear:
        """Moving and converting: what changes nothing is let through."""
        like = torch.empty(0, dtype=self.packed.dtype)
        moved = fn(like)
        return self if (moved.dtype, moved.device) == (like.dtype, like.device) else self._refuse()

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._refuse()

    def __deepcopy__(self, memo: Any) -> PackedLinear:
        self._refuse()

    def __reduce__(self) -> Any:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ModelError(
            "the weights of this model are packed for the CPU, and can be neither moved, converted, copied nor saved; "
            "set `backend: {pack: false}`, or load the model once more"
        )


# Compilers cannot look into a packed weight, so they see a layer's number instead.
_numbers = itertools.count()
_layers: WeakValueDictionary[int, PackedLinear] = WeakValueDictionary()
_library = torch.library.Library("draftmux", "FRAGMENT")
_library.define("linear(Tensor states, int number, int width) -> Tensor")
_library.impl("linear", lambda states, number, width: _layers[number](states), "CPU")
_library.impl("linear", lambda states, number, width: states.new_empty(*states.shape[:-1], width), "Meta")


def _formats() -> set[torch.dtype]:
    """Number formats that oneDNN packs on this machine."""
    if not torch.backends.mkldnn.is_available():
        return set()
    asked = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    return {torch.float32, *(dtype for dtype, name in asked.items() if getattr(torch.ops.mkldnn, name)())}


def packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module is a plain linear layer on the CPU whose number format oneDNN packs."""
    return (
        type(module) is nn.Linear
        and type(module.weight) is nn.Parameter
        and module.weight.device.type == "cpu"
        and module.weight.dtype in _formats()
        and not module._forward_hooks
        and not module._forward_pre_hooks
    )


def is_packed(model: nn.Module) -> bool:
    """Whether some layer of it is packed."""
    return any(isinstance(module, PackedLinear) for module in model.modules())


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a model by packed ones, those that read one tensor by one layer for all of them.

    An output layer that shares the embedding's weight gets a packed copy, and the embedding stays as it is.
    """
    _replace(model)
    with suppress(OSError, AttributeError):  # glibc would keep the memory of the replaced weights; others have no trim
        ctypes.CDLL(None).malloc_trim(0)


def _replace(model: nn.Module) -> None:
    """Group by group, so that few weights are held twice at a time."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, child in parent.named_children():
            if packable(child):
                places.setdefault(id(child), []).append((parent, name))
    groups = readers_of_one(model, packable)
    while groups:
        group = groups.pop()
        joined = Joined(PackedLinear(joint(group)), [layer.out_features for layer in group])
        for index, layer in enumerate(group):
            _put(places.pop(id(layer)), JoinedLinear(layer, joined, index))
    for spots in places.values():
        _put(spots, PackedLinear(getattr(*spots[0])))


def _put(spots: Sequence[tuple[nn.Module, str]], module: nn.Module) -> None:
    for parent, name in spots:
        setattr(parent, name, module)
