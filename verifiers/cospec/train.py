"""Trains an arbiter: labels, warm-up, group-relative policy optimisation, a threshold, and its folder."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import asdict, evolve, frozen

from draftmux.training.checkpoints import resume, save
from draftmux.training.loop import Course, fit
from draftmux.verifiers.cospec import checkpoint
from draftmux.verifiers.cospec.grpo import Group, decided, minibatches, monitors, step
from draftmux.verifiers.cospec.mining import Choice, Rig, balanced, judged, mine
from draftmux.verifiers.cospec.rollouts import roll_out, watching
from draftmux.verifiers.cospec.rows import Rows
from draftmux.verifiers.cospec.warmup import Labelled, Supervised, balance_of, figures, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.mining import Mismatch
    from draftmux.verifiers.cospec.network import Network
    from draftmux.verifiers.cospec.new_network import Studied
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.recipe import ArbiterRecipe, Objective
    from draftmux.verifiers.cospec.reward import Reward

REFUSE = 2.0  # a threshold that no score reaches
WORK = "work"


@frozen(eq=False)
class ArbiterJob:
    """What decodes, the problems to learn from and those held out, and where everything goes. `judge` labels mismatches
    in place of their outcomes."""

    rig: Rig
    arbiter: Studied
    task: Task
    learn: Sequence[Problem]
    held: Sequence[Problem]
    folder: Path
    report: Callable[[int, dict[str, Any]], None]
    judge: Callable[[Mismatch], float] | None = None
    source: str = ""
    command: str = ""

    @property
    def layout(self) -> tuple[int, int]:
        """Window and separator."""
        return self.arbiter.about.window, self.arbiter.about.separator

    @property
    def work(self) -> Path:
        """Where the state of the run is kept."""
        return self.folder / WORK


def train_arbiter(job: ArbiterJob, recipe: ArbiterRecipe, reward: Reward, objective: Objective) -> checkpoint.About:
    """Both stages, and the arbiter's folder."""
    kept = {"recipe": recipe.kept, "reward": asdict(reward), "objective": asdict(objective)}
    found: dict[str, Any] = {"warmup": warm_up(job, recipe)} if recipe.warmup_steps else {}
    if recipe.steps:
        found["grpo"] = optimise(
            job, recipe, Group(recipe.group, reward, recipe.advantage == "mixed_scaled"), objective
        )
    threshold, found["thresholds"] = choose_threshold(job)
    about = evolve(
        job.arbiter.about,
        threshold=threshold,
        metrics=found,
        origin={**kept, "steps": recipe.steps, "problems": job.source, "command": job.command},
    )
    job.arbiter.peft.save_pretrained(job.folder)
    checkpoint.save(job.folder, job.arbiter.network.head, about)
    return about


def warm_up(job: ArbiterJob, recipe: ArbiterRecipe) -> dict[str, Any]:
    """Stage 1; figures of held-out mismatches."""
    rows = labelled(job, recipe)
    learn, held = balanced(rows.read(job.learn), recipe.seed), rows.read(job.held)

    def epoch(number: int) -> Iterator[Labelled]:
        return (Labelled.of(group, *job.layout) for group in grouped(learn, recipe.rows, recipe.seed + number))

    def of_held(module: Any, device: torch.device) -> dict[str, Any]:
        pairs = [module(Labelled.of(group, *job.layout).to(device))[1:] for group in grouped(held, recipe.rows, None)]
        logits, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
        return figures(logits.float().sigmoid().tolist(), labels.tolist())

    course = Course(epoch, of_held, job.report)
    about = {"recipe": recipe.kept, "draft": job.arbiter.about.draft_fingerprint}
    return fit(Supervised(job.arbiter.network, balance_of(learn)), recipe.schedule, course, job.work / "warmup", about)


def labelled(job: ArbiterJob, recipe: ArbiterRecipe) -> Rows:
    """The labels of all problems, on disk."""
    refusing = job.arbiter.arbitration(REFUSE)
    about = {
        "target": job.arbiter.about.target_fingerprint,
        "draft": job.arbiter.about.draft_fingerprint,
        "max_new_tokens": job.rig.generation.max_new_tokens,
        "mismatches": recipe.mismatches,
        "seed": recipe.seed,
        "judged": job.judge is not None,
    }
    rows = Rows(job.work / "mismatches.jsonl", about)

    def label(problems: Sequence[Problem]) -> list[Mismatch]:
        found = mine(job.rig, problems, job.task, refusing, Choice(recipe.mismatches, recipe.seed))
        return found if job.judge is None else judged(found, job.judge)

    for through in rows.fill([*job.learn, *job.held], label):
        job.report(through, {"labelled": float(through)})
    return rows


def optimise(job: ArbiterJob, recipe: ArbiterRecipe, group: Group, objective: Objective) -> dict[str, Any]:
    """Stage 2; the figures of the last look at held-out problems."""
    network = job.arbiter.network
    reference: Network = copy.deepcopy(network, {id(p): p for p in network.parameters() if not p.requires_grad})
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW([{"params": trained, "share": 1.0}], lr=recipe.rate, weight_decay=0.0)
    folder = job.work / "grpo"
    folder.mkdir(parents=True, exist_ok=True)
    about = {"recipe": recipe.kept, "draft": job.arbiter.about.draft_fingerprint}
    progress = resume(folder, network, [optimizer], about)
    looks: list[dict[str, Any]] = progress.get("looks", [])
    plain = accuracy(job, REFUSE, job.held[: recipe.probe])
    learning = Learning(job, recipe, (network, reference), group, objective, optimizer)
    for number in range(progress.get("step", 0), recipe.steps):
        told = learning.step(number)
        with (folder / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": number + 1, **told}) + "\n")
        if (number + 1) % recipe.every == 0 or number + 1 == recipe.steps:
            looks.append({"step": number + 1, **look(job, recipe, plain), **told})
            save(folder, network, [optimizer], {"step": number + 1, "looks": looks, **about})
            job.report(number + 1, looks[-1])
            worse = [each["held_right"] < each["target_right"] for each in looks[-recipe.patience :]]
            if len(worse) == recipe.patience and all(worse):
                break
    return looks[-1] if looks else {}


@frozen(eq=False)
class Learning:
    """Stage 2 at work. `networks` are the policy and the reference."""

    job: ArbiterJob
    recipe: ArbiterRecipe
    networks: tuple[Network, Network]
    group: Group
    objective: Objective
    optimizer: torch.optim.Optimizer

    def step(self, number: int) -> dict[str, float]:
        """Rollouts of some problems, the same in every run, and one update."""
        job, recipe, heat = self.job, self.recipe, self.objective.temperature
        chosen = random.Random(f"{recipe.seed} {number}").sample(list(job.learn), min(recipe.chosen, len(job.learn)))
        exploring = job.arbiter.arbitration(temperature=heat)
        rollouts = self.group.play(job.rig, chosen, job.task, exploring, recipe.seed * 1_000_003 + number)
        told, blocks = monitors(rollouts, self.group.size), decided(rollouts, self.objective.mean)
        if not blocks:
            return told
        batches = list(minibatches(blocks, self.networks, job.layout, recipe.rows, heat))
        return told | step(batches, self.networks[0], self.objective, self.optimizer, recipe.clip)


def look(job: ArbiterJob, recipe: ArbiterRecipe, plain: Sequence[bool]) -> dict[str, float]:
    """Held-out problems with the arbiter at one half: right, and flips against the target alone."""
    found = accuracy(job, 0.5, job.held[: recipe.probe])
    pairs = list(zip(found, plain, strict=True))
    return {
        "held_right": float(np.mean(found)),
        "target_right": float(np.mean(plain)),
        "to_right": float(np.mean([ours and not theirs for ours, theirs in pairs])),
        "to_wrong": float(np.mean([theirs and not ours for ours, theirs in pairs])),
    }


def accuracy(job: ArbiterJob, threshold: float, problems: Sequence[Problem]) -> list[bool]:
    """Which problems are solved with the arbiter at a threshold; above 1 it is the target alone."""
    parts, _ = watching(job.rig.parts, job.arbiter.arbitration(threshold))
    results = roll_out(parts, job.rig.tokenizer, [job.rig.ask(p.key, p) for p in problems], job.rig.batch)
    return [job.task.solved(job.rig.text(results[p.key].tokens), p.reference) for p in problems]


def choose_threshold(job: ArbiterJob) -> tuple[float, dict[str, float]]:
    """Of some thresholds the one with which most held-out problems are solved; of equal ones that nearest to a half."""
    found = {each: float(np.mean(accuracy(job, each, job.held))) for each in (0.3, 0.4, 0.5, 0.6, 0.7)}
    best = max(found, key=lambda each: (found[each], -abs(each - 0.5)))
    return best, {str(each): right for each, right in found.items()}
