"""State of a training run in one safetensors file: parameters, their moments, and the step. Nothing is pickled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import nn

    Optimizers = Sequence[torch.optim.Optimizer]

WEIGHTS = "state.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")  # AdamW's, and Muon's


def save(folder: Path, module: nn.Module, optimizers: Optimizers, progress: dict[str, Any]) -> None:
    """Keep the trainable parameters of `module`, their moments, and `progress`, which holds the `step`."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in _trained(module).items():
        tensors[name] = parameter.detach().contiguous()
        state = {kind: kept for each in optimizers for kind, kept in each.state.get(parameter, {}).items()}
        tensors |= {f"{name}/{kind}": state[kind].contiguous() for kind in MOMENTS if kind in state}
    part = folder / f"{WEIGHTS}.partial"
    save_file(tensors, part, {"progress": json.dumps(progress)})
    part.replace(folder / WEIGHTS)


def resume(folder: Path, module: nn.Module, optimizers: Optimizers, about: dict[str, Any]) -> dict[str, Any]:
    """Put a kept state back; its progress, or {} if there is none. RequestError when it is not of this run.

    `about` is what makes it this run, as `save` was told.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        return {}
    try:
        with safe_open(path, "pt") as file:
            progress: dict[str, Any] = json.loads(file.metadata()["progress"])
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except Exception as error:  # a file of somebody else's, or a broken disk
        raise RequestError(f"{path} cannot be read: {error}; remove it to begin anew") from error
    if odd := [key for key, value in about.items() if progress.get(key) != value]:
        raise RequestError(
            f"{path} is of another run: {odd[0]} was {progress.get(odd[0])}, and is {about[odd[0]]} now; train into "
            f"another folder, or remove it"
        )
    for name, parameter in _trained(module).items():
        kept = tensors.get(name)
        if kept is None or kept.shape != parameter.shape:
            raise RequestError(
                f"{path} is of another model: {name} is {None if kept is None else tuple(kept.shape)}, not "
                f"{tuple(parameter.shape)}; train into another folder, or remove it"
            )
        with torch.no_grad():
            parameter.copy_(kept)
        moments = {kind: tensors[f"{name}/{kind}"] for kind in MOMENTS if f"{name}/{kind}" in tensors}
        if not moments:
            continue
        own = next(each for each in optimizers if any(parameter is p for g in each.param_groups for p in g["params"]))
        own.state[parameter] = {kind: tensor.to(parameter.device) for kind, tensor in moments.items()}
        if "exp_avg" in moments:
            own.state[parameter]["step"] = torch.tensor(float(progress["step"]))
    return progress


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
