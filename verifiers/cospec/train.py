"""Trains an arbiter: labels, warm-up, group-relative policy optimisation, a threshold, and its folder."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import PartialState
from attrs import asdict, evolve, frozen

from draftmux.errors import RequestError
from draftmux.training.loop import Course, fit
from draftmux.verifiers.cospec import checkpoint
from draftmux.verifiers.cospec.card import card
from draftmux.verifiers.cospec.grpo import Group
from draftmux.verifiers.cospec.mining import Choice, balanced, by_judge, by_outcome
from draftmux.verifiers.cospec.monitors import curves
from draftmux.verifiers.cospec.optimise import STEPS, Setup, Stage, best, read_steps
from draftmux.verifiers.cospec.rows import CHUNK, Rows
from draftmux.verifiers.cospec.warmup import Labelled, Supervised, balance_of, figures, grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from draftmux.verifiers.cospec.judge import Judge
    from draftmux.verifiers.cospec.mining import Mismatch
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.recipe import ArbiterRecipe, Objective
    from draftmux.verifiers.cospec.reward import Reward

WORK, CURVES, CARD = "work", "monitors.png", "README.md"
JUDGED = 16  # problems that are judged at once
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)


@frozen(eq=False)
class ArbiterJob(Setup):
    """The problems to learn from and those held out, and where everything goes. `judge` labels mismatches in place of
    their outcomes; `judged_by` says who that is."""

    learn: Sequence[Problem]
    held: Sequence[Problem]
    folder: Path
    judge: Judge | None = None
    judged_by: str = ""
    source: str = ""
    command: str = ""

    @property
    def work(self) -> Path:
        """Where the state of the run is kept."""
        return self.folder / WORK


def train_arbiter(job: ArbiterJob, recipe: ArbiterRecipe, reward: Reward, objective: Objective) -> checkpoint.About:
    """Both stages, and the arbiter's folder."""
    kept = {"recipe": recipe.kept, "reward": asdict(reward), "objective": asdict(objective)}
    rows = labelled(job, recipe) if recipe.warmup_steps else None
    found: dict[str, Any] = {} if rows is None else {"warmup": warm_up(job, recipe, rows)}
    if recipe.steps:
        held = [] if rows is None else rows.read(job.held)
        found["grpo"] = optimise(job, recipe, Group.of(recipe, reward), objective, held)
    threshold, found["thresholds"] = choose_threshold(job)
    about = evolve(
        job.arbiter.about,
        threshold=threshold,
        metrics=found,
        origin={**kept, "steps": recipe.steps, "problems": job.source, "command": job.command},
    )
    if PartialState().is_main_process:
        job.arbiter.peft.save_pretrained(job.folder, save_embedding_layers=False)
        checkpoint.save(job.folder, job.arbiter.network.head, about)
        (job.folder / CARD).write_text(card(about, job.folder.name), "utf-8")  # in place of PEFT's
    return about


def warm_up(job: ArbiterJob, recipe: ArbiterRecipe, rows: Rows) -> dict[str, Any]:
    """Stage 1; figures of held-out mismatches."""
    learn = balanced(rows.read(job.learn), recipe.seed)
    if not learn:
        raise RequestError(
            f"none of the {len(job.learn)} problems has a mismatch of draft and target to learn from; give more "
            f"problems, or a draft model that differs from the target"
        )

    def epoch(number: int) -> Iterator[list[Mismatch]]:
        return grouped(learn, recipe.rows, recipe.seed + number)

    def collate(group: list[Mismatch]) -> Labelled:
        return Labelled.of(group, *job.layout)

    held = rows.read(job.held)

    def of_held(module: Any, device: torch.device) -> dict[str, Any]:
        return of_labels(job, module, held, recipe.rows, device)

    course = Course(epoch, collate, of_held, job.report, good=discerning, placed=True)
    about = {"recipe": recipe.kept_of_warmup, **job.about}
    objective = Supervised(job.arbiter.network, balance_of(learn))
    return fit(objective, recipe.schedule, course, job.work / "warmup", about)


@torch.no_grad()
def of_labels(
    job: ArbiterJob, module: Any, held: Sequence[Mismatch], rows: int, device: torch.device
) -> dict[str, Any]:
    """Figures of held-out mismatches; none if there are no such."""
    if not held:
        return {}
    pairs = [module(Labelled.of(group, *job.layout).to(device))[1:] for group in grouped(held, rows, None)]
    logits, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
    return figures(logits.float().sigmoid().tolist(), labels.tolist())


def discerning(figures: dict[str, Any]) -> float:
    """How well labels are told apart; by their mean error where they are all alike."""
    auc = float(figures.get("auc", math.nan))
    return -float(figures.get("mean_error", 0.0)) if math.isnan(auc) else auc


def labelled(job: ArbiterJob, recipe: ArbiterRecipe) -> Rows:
    """The labels of all problems, on disk. Under `torchrun` one process makes them for all."""
    choice = Choice(recipe.mismatches, recipe.seed)
    about = {name: value for name, value in job.about.items() if name != "problems"}  # each has labels of its own
    about |= {"mismatches": recipe.mismatches, "seed": recipe.seed, "judge": job.judged_by}
    rows = Rows(job.work / "mismatches.jsonl", about, CHUNK if job.judge is None else JUDGED)

    def label(problems: Sequence[Problem]) -> list[Mismatch]:
        if job.judge is not None:
            return by_judge(job.rig, problems, job.judge, choice)
        return by_outcome(job.rig, problems, job.task, choice)

    with PartialState().main_process_first():
        for through in rows.fill([*job.learn, *job.held], label):
            job.report(through, {"labelled": float(through)})
    return rows


def optimise(
    job: ArbiterJob, recipe: ArbiterRecipe, group: Group, objective: Objective, held: Sequence[Mismatch]
) -> dict[str, Any]:
    """Stage 2 and its curves; the figures of the last look at held-out problems, and at `held` mismatches of them."""
    network = job.arbiter.network
    labels = partial(of_labels, job, Supervised(network, 1.0), held, recipe.rows, network.backbone.device)
    stage = Stage.of(job, recipe, group, objective, labels if held else dict)
    looks = stage.run(job.learn, job.held[: recipe.probe], job.work / "grpo")
    if PartialState().is_main_process:
        steps = read_steps(job.work / "grpo" / STEPS, recipe.steps)
        (job.folder / CURVES).write_bytes(curves(steps, looks))
    return best(looks)


def choose_threshold(job: ArbiterJob) -> tuple[float, dict[str, float]]:
    """Of some thresholds the one with which most held-out problems are solved; of equal ones that nearest to a half."""
    found = {each: float(np.mean(job.solved(job.held, each))) for each in THRESHOLDS}
    best = max(found, key=lambda each: (found[each], -abs(each - 0.5)))
    return best, {str(each): right for each, right in found.items()}
