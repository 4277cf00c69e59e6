"""PEFT's plain LoRA on linear layers of a model whose weights stay shared with whoever else uses it."""

from __future__ import annotations

import copy
import json
import math
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from torch import nn

from draftmux.errors import ModelError
from draftmux.models.parts import part_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

ADAPTER, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Of PEFT's LoraConfig: what changes the sum below. Anything but these values is refused.
PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "use_rslora": (False, True, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": (None, []),
    "layer_replication": (None,),
    "fan_in_fan_out": (False, None),
    "trainable_token_indices": (None,),
    "lora_bias": (False, None),
    "alora_invocation_tokens": (None,),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),  # others change the base
}


class Adapted(nn.Module):
    """A linear layer and a low-rank term beside it, `x A' B' * scale` (2106.09685). The layer itself is shared; the
    term is two layers of its own, so that a backend makes of them what it makes of all others."""

    def __init__(self, base: nn.Module, a: Tensor, b: Tensor, scale: float) -> None:
        super().__init__()
        self.base, self.down, self.up = base, _linear(a), _linear(b * scale)

    def forward(self, states: Tensor) -> Tensor:
        """`(…, in_features)` to `(…, out_features)`."""
        return self.base(states) + self.up(self.down(states))  # type: ignore[no-any-return]


def _linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


@frozen
class Adapter:
    """A PEFT LoRA: per module's name its `A (r, in)` and `B (out, r)`, and the scale of their product."""

    source: str
    pairs: Mapping[str, tuple[Tensor, Tensor]]
    scale: float


def own_copy(module: Any) -> Any:
    """The same module with a list of children of its own; children and weights are shared."""
    twin = copy.copy(module)
    for table in ("_modules", "_parameters", "_buffers"):
        twin.__dict__[table] = dict(module.__dict__[table])
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):  # taps of the target are none of ours
        twin.__dict__[hooks] = type(module.__dict__[hooks])()
    return twin


def unhooked(module: Any) -> Any:
    """The same module without the target's taps, wherever below they hang."""
    if not any(inner._forward_hooks or inner._forward_pre_hooks for inner in module.modules()):
        return module
    twin = own_copy(module)
    twin._modules |= {name: child and unhooked(child) for name, child in twin._modules.items()}
    return twin


def read_adapter(source: str, revision: str | None = None) -> Adapter:
    """Read PEFT's two files of a folder, a package or the hub; ModelError when they are not those of a plain LoRA."""
    config_path, weights_path = (_file(source, name, revision) for name in (ADAPTER, WEIGHTS))
    rank, scale = _rank_and_scale(source, config_path)
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _tensors(source, weights_path).items():
        module, _, kind = name.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".")
        if kind not in ("lora_A", "lora_B") or tensor.ndim != 2:
            raise ModelError(f"adapter '{source}': tensor {name} is not of a plain LoRA")
        pairs.setdefault(module, {})[kind] = tensor
    if not pairs:
        raise ModelError(f"adapter '{source}': {weights_path.name} holds no tensors; the file is incomplete")
    half = [module for module, both in pairs.items() if len(both) < 2]
    if half:
        raise ModelError(f"adapter '{source}': {half[0]} has lora_A or lora_B alone; the file is incomplete")
    if odd := [(module, len(both["lora_A"])) for module, both in pairs.items() if len(both["lora_A"]) != rank]:
        raise ModelError(
            f"adapter '{source}': {odd[0][0]} has rank {odd[0][1]}, and {config_path.name} says r: {rank}; the two "
            f"files are not of one adapter"
        )
    return Adapter(source, {module: (both["lora_A"], both["lora_B"]) for module, both in pairs.items()}, scale)


def _file(source: str, name: str, revision: str | None) -> Path:
    path = part_file(source, name, revision)
    if path is None:
        raise ModelError(f"adapter folder {source} has no {name}; it is what PEFT's save_pretrained writes")
    return path


def _rank_and_scale(source: str, path: Path) -> tuple[int, float]:
    """The rank, and what the product of A and B is multiplied by."""
    try:
        config = dict(json.loads(path.read_text("utf-8")))
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        if rank < 1 or not math.isfinite(alpha):
            raise ValueError(f"r: {rank}, lora_alpha: {alpha}")
        scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"adapter '{source}': {path.name} is not PEFT's: {error!r}") from error
    for key, allowed in PLAIN.items():
        if config.get(key, allowed[0]) not in allowed:
            raise ModelError(f"adapter '{source}': {key}: {config[key]} is not supported; only plain LoRA is")
    return rank, scale


def _tensors(source: str, path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # foreign data
        raise ModelError(f"adapter '{source}': {path.name} cannot be read: {error}") from error


def adapt(model: Any, adapter: Adapter, what: str) -> None:
    """Put adapted layers into `model`, a copy of its own, and copies of the modules between; ModelError when they do
    not fit. `what` is the model in words, for errors.
    """
    owned = {id(model)}
    for path, (a, b) in adapter.pairs.items():
        parent, names = model, path.split(".")
        for name in names[:-1]:
            child = parent._modules.get(name)
            if child is None:
                raise ModelError(f"adapter '{adapter.source}' adapts {path}, which {what} has not")
            if id(child) not in owned:
                child = parent._modules[name] = own_copy(child)
                owned.add(id(child))
            parent = child
        base = parent._modules.get(names[-1])
        shape = (getattr(base, "out_features", None), getattr(base, "in_features", None))
        if base is None or shape != (b.shape[0], a.shape[1]) or a.shape[0] != b.shape[1]:
            raise ModelError(
                f"adapter '{adapter.source}': {path} is {tuple(b.shape)} times {tuple(a.shape)}, the target's layer "
                f"{shape}; it was trained for another model"
            )
        like = model.device, model.dtype
        parent._modules[names[-1]] = Adapted(base, a.to(*like), b.to(*like), adapter.scale)
    with torch.no_grad():
        model.eval()
