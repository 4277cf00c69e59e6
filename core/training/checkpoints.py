"""State of a training run as safetensors and JSON: parameters, AdamW's moments, the step. Nothing is pickled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

WEIGHTS, PROGRESS = "state.safetensors", "state.json"
MOMENTS = ("exp_avg", "exp_avg_sq")


def save(folder: Path, module: nn.Module, optimizer: torch.optim.AdamW, progress: dict[str, Any]) -> None:
    """Keep the trainable parameters of `module`, their moments, and `progress`, which holds the `step`."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in _trained(module).items():
        tensors[name] = parameter.detach().contiguous()
        state = optimizer.state.get(parameter, {})
        tensors |= {f"{name}/{kind}": state[kind].contiguous() for kind in MOMENTS if kind in state}
    part = folder / f"{WEIGHTS}.partial"
    save_file(tensors, part)
    part.replace(folder / WEIGHTS)
    (folder / PROGRESS).write_text(json.dumps(progress, indent=1), "utf-8")


def resume(folder: Path, module: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Any]:
    """Put a kept state back; its progress, or {} if there is none. RequestError when it is of another model."""
    if not (folder / PROGRESS).is_file() or not (folder / WEIGHTS).is_file():
        return {}
    progress: dict[str, Any] = json.loads((folder / PROGRESS).read_text("utf-8"))
    tensors = load_file(folder / WEIGHTS)
    for name, parameter in _trained(module).items():
        kept = tensors.get(name)
        if kept is None or kept.shape != parameter.shape:
            raise RequestError(
                f"{folder / WEIGHTS} is of another model: {name} is {None if kept is None else tuple(kept.shape)}, not "
                f"{tuple(parameter.shape)}; train into another folder, or remove this one"
            )
        with torch.no_grad():
            parameter.copy_(kept)
        moments = {kind: tensors[f"{name}/{kind}"] for kind in MOMENTS if f"{name}/{kind}" in tensors}
        if moments:
            step = torch.tensor(float(progress["step"]))
            optimizer.state[parameter] = {"step": step, **{k: t.to(parameter.device) for k, t in moments.items()}}
    return progress


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
