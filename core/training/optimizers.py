"""The optimizers of a run: AdamW, or Muon for the matrices between hidden states and AdamW for what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.training.recipe import Schedule

VOCABULARY = ("embed_tokens", "lm_head")  # matrices with a row a token: not Muon's
BESIDE_MUON = 0.1  # AdamW's rate where Muon has the schedule's


def optimizers_of(module: nn.Module, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """For all trainable parameters of `module`; their groups' `share` times the schedule's rate is their own."""
    check_optimizer(schedule)
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    if schedule.optimizer == "adamw":
        return [_adamw(_by_share(named, schedule.shares), schedule.learning_rate)]
    inner = [name for name, parameter in named.items() if _is_inner(name, parameter)]
    # 2502.16982: steps scaled to the size of AdamW's, so that rates are alike for matrices of all shapes.
    muon = torch.optim.Muon(
        [{"params": [named[name] for name in inner], "share": 1.0}],
        lr=schedule.learning_rate,
        weight_decay=0.0,
        adjust_lr_fn="match_rms_adamw",
    )
    rest = [parameter for name, parameter in named.items() if name not in inner]
    return [muon, _adamw({BESIDE_MUON: rest}, schedule.learning_rate)] if rest else [muon]


def check_optimizer(schedule: Schedule) -> None:
    """RequestError when this optimizer cannot be had; asked before a long run begins."""
    if schedule.optimizer != "muon":
        return
    way_out = "take --optimizer adamw, with a lower --learning-rate"
    if not hasattr(torch.optim, "Muon"):
        raise RequestError(f"--optimizer muon needs torch 2.9 or later, and this is {torch.__version__}; {way_out}")
    if schedule.precision == "fp16":  # one gradient scale for two optimizers
        raise RequestError(f"--optimizer muon does not go with --precision fp16; take bf16, or {way_out}")


def _is_inner(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and not any(part in VOCABULARY for part in name.split("."))


def _by_share(named: Mapping[str, nn.Parameter], shares: Mapping[str, float]) -> dict[float, list[nn.Parameter]]:
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in named.items():
        share = next((share for start, share in shares.items() if name.startswith(start)), 1.0)
        groups.setdefault(share, []).append(parameter)
    return groups


def _adamw(by_share: Mapping[float, list[nn.Parameter]], rate: float) -> torch.optim.Optimizer:
    groups = [{"params": parameters, "share": share} for share, parameters in by_share.items()]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
