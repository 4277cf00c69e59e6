"""Weights of linear layers in 8 or 4 bits, rounded by torchao (extra `quantized`). Activations keep the model's dtype.

Knows which shapes, devices and number formats packed weights are made for, and which kernels multiply them. Knows
nothing of where a model came from or what decodes with it: a quantised model is a model of its own, with its own text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.nn.functional import linear

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Quantization = Literal["none", "int8", "int4", "fp8"]
    Layers = dict[str, nn.Linear]
    Kinds = dict[str, Quantization]  # of each layer

GROUP = 32  # weights of a row that share a scale in int4
NARROW = 8  # rows up to which the int8 kernel is faster on a CPU than unpacking the weights for a matrix product
DTYPES = {torch.bfloat16, torch.float16, torch.float32}
FP8_CAPABILITY = (8, 9)


class QuantisedLinear(nn.Linear, ABC):
    """A linear layer over a torchao weight on the CPU that calls the kernel itself. Inference only.

    torchao's own call costs 10 us of Python a layer, and in int8 unpacks the weight at every pass.
    """

    codes: Tensor
    scales: Tensor

    @classmethod
    def over(cls, layer: nn.Linear) -> QuantisedLinear:
        """The same layer; it shares the weight."""
        packed = cls(layer.in_features, layer.out_features, bias=False, device="meta")
        packed.weight, packed.bias = layer.weight, layer.bias
        packed.codes, packed.scales = cls._parts(layer.weight)
        return packed.eval()

    @staticmethod
    @abstractmethod
    def _parts(weight: Any) -> tuple[Tensor, Tensor]:
        """Codes and scales of torchao's weight, as the kernel takes them."""

    @abstractmethod
    def _multiply(self, states: Tensor) -> Tensor:
        """`(n, in_features)` to `(n, out_features)`."""

    def forward(self, input: Tensor) -> Tensor:
        """`(…, in_features)` to `(…, out_features)`."""
        product = self._multiply(input.reshape(-1, self.in_features).contiguous())
        product = product.view(*input.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


class Int4Linear(QuantisedLinear):
    """One scale and zero for `GROUP` weights of a row."""

    @staticmethod
    def _parts(weight: Any) -> tuple[Tensor, Tensor]:
        return weight.qdata, weight.scale_and_zero

    def _multiply(self, states: Tensor) -> Tensor:
        kernel = torch.ops.aten._weight_int4pack_mm_for_cpu.default
        return kernel(states, self.codes, GROUP, self.scales)  # type: ignore[no-any-return]


class Int8Linear(QuantisedLinear):
    """One scale a row of the weight."""

    @staticmethod
    def _parts(weight: Any) -> tuple[Tensor, Tensor]:
        return weight.qdata, weight.scale.flatten().to(weight.dtype)

    def _multiply(self, states: Tensor) -> Tensor:
        if len(states) > NARROW:
            return linear(states, self.codes.to(states.dtype)) * self.scales
        return torch._weight_int8pack_mm(states, self.codes, self.scales)


def quantize(model: Any, quantization: Quantization, source: str) -> None:
    """Round the weights of all linear layers in place, the output layer's too; embeddings stay as they are.

    An output layer that shares the embedding's weight gets a rounded copy. With int4 it is int8: in 4 bits it changed
    SmolLM2 more than all other layers together. ModelError when torchao is not installed, and when the device, the
    number format or a layer does not suit: no layer is left out silently.
    """
    if quantization == "none":
        return
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    output = model.get_output_embeddings()
    kinds: Kinds = {
        name: "int8" if quantization == "int4" and layer is output else quantization for name, layer in layers.items()
    }
    weight = next(model.parameters())
    fault = _unfit_device(weight.device, weight.dtype, quantization) or _unfit_layers(model, layers, kinds)
    fault = fault or _rounded(model, layers, kinds)
    if fault:
        raise ModelError(f"model '{source}', quantization {quantization}: {fault}")
    _call_kernels(model)


def is_quantised(module: Any) -> bool:
    """Whether a module's weight is torchao's, which other code must not take for a plain matrix."""
    return type(getattr(module, "weight", None)).__module__.startswith("torchao.")


def _unfit_device(device: torch.device, dtype: torch.dtype, quantization: Quantization) -> str | None:
    """What is wrong, and the way out."""
    given = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        return f"there are no kernels for dtype {given}; set dtype to bfloat16, float16 or float32"
    if quantization == "fp8":
        found = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
        if found < FP8_CAPABILITY:
            needed, has = (".".join(map(str, capability)) for capability in (FP8_CAPABILITY, found))
            has = f"of {has}" if device.type == "cuda" else "none"
            return f"it needs a CUDA device of capability {needed} or higher, and {device} is {has}; use int8 or int4"
    if device.type not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, and the model is on {device}; set device to one of them"
    if quantization == "int4" and dtype != torch.bfloat16:  # on a CPU 20 times slower otherwise, on a GPU not there
        return f"its kernels are made for dtype bfloat16, got {given}; set dtype: bfloat16, or use int8"
    return None


def _unfit_layers(model: nn.Module, layers: Layers, kinds: Kinds) -> str | None:
    """Every matrix but an embedding must be a linear layer's, and of a size that can be packed."""
    known = {id(layer.weight) for layer in layers.values()}
    known |= {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    others = [name for name, weight in model.named_parameters() if weight.ndim > 1 and id(weight) not in known]
    if others:
        what = f"{type(model).__name__} keeps {len(others)} matrices outside of linear layers"
        return f"{what}, the first is {others[0]}; leave quantization out"
    four = {name: layer for name, layer in layers.items() if kinds[name] == "int4"}
    odd = [name for name, layer in four.items() if layer.in_features % GROUP or layer.out_features % 16]
    if odd:
        size = f"{layers[odd[0]].in_features} inputs, {layers[odd[0]].out_features} outputs"
        rule = f"inputs must be a multiple of {GROUP}, outputs of 16"
        return f"{rule}; {len(odd)} of {len(four)} layers are not, the first is {odd[0]} ({size}); use int8"
    return None


def _rounded(model: nn.Module, layers: Layers, kinds: Kinds) -> str | None:
    """Let torchao do it; what went wrong, if anything did."""
    device = next(model.parameters()).device.type
    for kind in sorted(set(kinds.values())):
        quantize_, config = _torchao(kind, device)
        try:
            quantize_(model, config, lambda _, name, kind=kind: kinds.get(name) == kind)
        except Exception as error:
            return f"torchao failed: {' '.join(str(error).split())[:300]}; use another one"
    left = [name for name, layer in layers.items() if not is_quantised(layer)]
    if left:
        return f"torchao left out {len(left)} of {len(layers)} layers, the first is {left[0]}; use another one"
    return None


def _call_kernels(model: nn.Module) -> None:
    """Put the modules that call kernels in place. Elsewhere torchao's own call is as good as it gets."""
    child: Any
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if _has_kernel(child):
                kind = Int4Linear if hasattr(child.weight, "scale_and_zero") else Int8Linear
                setattr(parent, name, kind.over(child))


def _has_kernel(module: Any) -> bool:
    """The kernels are vectorised in bfloat16 only. That of int8 reads past the end of rows that are no multiple."""
    fast = is_quantised(module) and module.weight.device.type == "cpu" and module.weight.dtype == torch.bfloat16
    return fast and module.in_features % GROUP == 0


def _torchao(kind: str, device: str) -> tuple[Callable[..., None], Any]:
    """torchao's function and its setting. `set_inductor_config` would change how the whole process compiles."""
    try:
        from torchao import quantization as ao
        from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    except ImportError as error:
        raise ModelError(
            f"quantization {kind} needs the package torchao: pip install 'draftmux[quantized]' ({error})"
        ) from error
    plain = {"set_inductor_config": False}
    configs: dict[tuple[str, str], Callable[[], Any]] = {
        ("int4", "cpu"): lambda: PrototypeInt4WeightOnlyConfig(group_size=GROUP, **plain),
        ("int4", "cuda"): lambda: ao.Int4WeightOnlyConfig(GROUP, int4_packing_format="tile_packed_to_4d", **plain),
        ("fp8", device): lambda: ao.Float8WeightOnlyConfig(**plain),
    }
    return ao.quantize_, configs.get((kind, device), lambda: ao.Int8WeightOnlyConfig(**plain))()
