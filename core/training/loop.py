"""The loop that trains a part: rates, clipping, figures, a state kept at every report. Knows no method."""

from __future__ import annotations

import math
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from torch import nn

from draftmux.errors import RequestError
from draftmux.training.checkpoints import resume, save
from draftmux.training.optimizers import optimizers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from draftmux.training.recipe import Schedule

    Report = Callable[[int, dict[str, Any]], None]  # step, figures
    Epoch = Callable[[int], Iterator[Any]]  # number of an epoch -> its batches

BEST = "best"  # folder of the best report's parameters


@frozen(eq=False)
class Course:
    """What is learned from: batches by epoch, and figures of held-out data, given the module on its device. `good`
    rates such figures: the parameters at the end are then those of the best report. `placed`: the module is on its
    device already, with weights that others use."""

    epoch: Epoch
    figures: Callable[[nn.Module, torch.device], dict[str, Any]]
    report: Report
    every: int = 100
    good: Callable[[dict[str, Any]], float] | None = None
    placed: bool = False


def fit(
    objective: nn.Module, schedule: Schedule, course: Course, folder: Path, about: dict[str, Any]
) -> dict[str, Any]:
    """Train; the last figures. `objective(batch, done)` gives a tuple that begins with the loss; `done` is the share of
    the run that is behind it.

    A state is kept in `folder` at every report, and found there again. `about` is kept with it.
    """
    from accelerate import Accelerator

    (folder / BEST if course.good else folder).mkdir(parents=True, exist_ok=True)
    accelerator = Accelerator(mixed_precision=schedule.precision)
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    optimizers = optimizers_of(objective, schedule)
    progress = resume(folder, objective, optimizers, about)
    figures: dict[str, Any] = progress.get("figures", {})
    best: dict[str, Any] | None = progress.get("best")
    device = next(objective.parameters()).device if course.placed else accelerator.device
    placing = [not course.placed] * (1 + len(optimizers))
    module, *optimizers = accelerator.prepare(objective, *optimizers, device_placement=placing)
    running: list[float] = []
    for step, batch in enumerate(
        _own(course.epoch, progress.get("step", 0), schedule, accelerator), progress.get("step", 0)
    ):
        for group in (group for each in optimizers for group in each.param_groups):
            group["lr"] = schedule.rate(step) * group["share"]
        loss = module(batch.to(device), step / schedule.steps)[0]
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(trained, schedule.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        running.append(float(loss.detach()))
        if not math.isfinite(running[-1]):
            raise RequestError(
                f"the loss is {running[-1]} at step {step + 1}; lower the learning rate, or train in float32"
            )
        if (step + 1) % course.every == 0 or step + 1 == schedule.steps:
            figures = {"loss": sum(running) / len(running), **_held_out(module, course, device)}
            running = []
            if accelerator.is_main_process:
                if course.good is not None and (best is None or course.good(figures) >= course.good(best)):
                    best = figures
                    save(folder / BEST, objective, [], {"step": step + 1, **about})
                kept = {"step": step + 1, "figures": figures, "best": best, **about}
                save(folder, objective, optimizers, kept)
                course.report(step + 1, figures)
    if course.good is None:
        return figures
    accelerator.wait_for_everyone()
    if not resume(folder / BEST, objective, [], about):
        raise RequestError(f"{folder / BEST} is gone, the best state of this run; remove {folder} to begin anew")
    return best or figures


def _own(epoch: Epoch, start: int, schedule: Schedule, accelerator: Any) -> Iterator[Any]:
    """This process's batches from step `start` on, epoch after epoch."""
    stream = (batch for number in count() for batch in epoch(number))
    shares, index = accelerator.num_processes, accelerator.process_index
    return islice(stream, start * shares + index, schedule.steps * shares, shares)


@torch.no_grad()
def _held_out(module: nn.Module, course: Course, device: torch.device) -> dict[str, Any]:
    module.eval()
    try:
        return course.figures(module, device)
    finally:
        module.train()
