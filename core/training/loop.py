"""The loop that trains a part: rates, clipping, figures, a state kept at every report. Knows no method."""

from __future__ import annotations

import math
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, frozen
from torch import nn

from draftmux.errors import RequestError
from draftmux.training.checkpoints import resume, save
from draftmux.training.optimizers import optimizers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from draftmux.training.checkpoints import Optimizers
    from draftmux.training.recipe import Schedule

    Report = Callable[[int, dict[str, Any]], None]  # step, figures
    Epoch = Callable[[int], Iterator[Any]]  # number of an epoch -> what its batches are made of

BEST = "best"  # folder of the best report's parameters


@frozen(eq=False)
class Course:
    """What is learned from: batches by epoch, which `collate` makes of what `epoch` gives, each process its own; and
    figures of held-out data, given the module on its device. `good` rates such figures: the parameters at the end are
    then those of the best report. `placed`: the module is on its device already, with weights that others use."""

    epoch: Epoch
    collate: Callable[[Any], Any]
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

    accelerator = Accelerator(mixed_precision=schedule.precision)
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    optimizers = optimizers_of(objective, schedule)
    keeper = _Keeper(objective, course, folder, about)
    progress = keeper.begin(optimizers)
    start, figures = progress.get("step", 0), progress.get("figures", {})
    device = next(objective.parameters()).device if course.placed else accelerator.device
    placing = [not course.placed] * (1 + len(optimizers))
    module, *prepared = accelerator.prepare(objective, *optimizers, device_placement=placing)
    running: list[float] = []
    for step, drawn in enumerate(_own(course.epoch, start, schedule, accelerator), start):
        for group in (group for each in prepared for group in each.param_groups):
            group["lr"] = schedule.rate(step) * group["share"]
        loss = module(course.collate(drawn).to(device), step / schedule.steps)[0]
        running.append(_finite(float(accelerator.reduce(loss.detach(), "mean")), step))
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(trained, schedule.clip)
        for optimizer in prepared:
            optimizer.step()
            optimizer.zero_grad()
        if (step + 1) % course.every == 0 or step + 1 == schedule.steps:
            figures = {"loss": sum(running) / len(running), **_held_out(module, course, device)}
            running = []
            if accelerator.is_main_process:
                keeper.keep(step + 1, figures, prepared)
    accelerator.wait_for_everyone()
    return keeper.end(figures)


@define(eq=False)
class _Keeper:
    """The states of a run on disk: the last one, and with `good` the best one."""

    objective: nn.Module
    course: Course
    folder: Path
    about: dict[str, Any]
    best: dict[str, Any] | None = None

    def begin(self, optimizers: Optimizers) -> dict[str, Any]:
        """Put the last state back; its progress."""
        (self.folder / BEST if self.course.good else self.folder).mkdir(parents=True, exist_ok=True)
        progress = resume(self.folder, self.objective, optimizers, self.about)
        self.best = progress.get("best")
        return progress

    def keep(self, step: int, figures: dict[str, Any], optimizers: Optimizers) -> None:
        """One more state."""
        good = self.course.good
        if good is not None and (self.best is None or good(figures) >= good(self.best)):
            self.best = figures
            save(self.folder / BEST, self.objective, [], {"step": step, **self.about})
        kept = {"step": step, "figures": figures, "best": self.best, **self.about}
        save(self.folder, self.objective, optimizers, kept)
        self.course.report(step, figures)

    def end(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Put the best state back, if there is one; the figures of what stays."""
        if self.course.good is None:
            return figures
        if not resume(self.folder / BEST, self.objective, [], self.about):
            place = self.folder / BEST
            raise RequestError(f"{place} is gone, the best state of this run; remove {self.folder} to begin anew")
        return self.best or figures


def _finite(loss: float, step: int) -> float:
    if not math.isfinite(loss):
        raise RequestError(f"the loss is {loss} at step {step + 1}; lower the learning rate, or train in float32")
    return loss


def _own(epoch: Epoch, start: int, schedule: Schedule, accelerator: Any) -> Iterator[Any]:
    """What this process's batches are made of, from step `start` on, epoch after epoch."""
    stream = (drawn for number in count() for drawn in epoch(number))
    shares, index = accelerator.num_processes, accelerator.process_index
    return islice(stream, start * shares + index, schedule.steps * shares, shares)


@torch.no_grad()
def _held_out(module: nn.Module, course: Course, device: torch.device) -> dict[str, Any]:
    module.eval()
    try:
        return course.figures(module, device)
    finally:
        module.train()
