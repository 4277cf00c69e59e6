"""Trains a probe: answers, labels, states of all layers, a regression for each, a choice, and what it is worth.

Source: SwitchSD (2609.20186). Layer, state, shift, penalty and threshold are chosen by the F1 of validation prompts;
what is reported is of test prompts that nothing was chosen by.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import frozen

from draftmux.backends.taps import decoder_layers
from draftmux.errors import RequestError
from draftmux.models.fingerprint import fingerprint
from draftmux.routers.linear_probe import activations, report
from draftmux.routers.linear_probe.activations import Draws, Examples, Text
from draftmux.routers.linear_probe.artefact import About, save
from draftmux.routers.linear_probe.fitting import best_threshold, fit, quality
from draftmux.routers.linear_probe.trial import Candidate, Findings, special_ids
from draftmux.training.answers import read_samples, shards
from draftmux.types import TAP_KINDS, Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend
    from draftmux.routers.linear_probe.recipe import ProbeRecipe
    from draftmux.training.prompts import Prompt
    from draftmux.training.recipe import Answers

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1)


@frozen(eq=False)
class ProbeJob:
    """`answer(folder, how)` writes the target's answers to `prompts` into a folder; `open_backend(taps)` opens it."""

    spec: ModelSpec
    prompts: Sequence[Prompt]
    folder: Path
    answers: Path  # a folder of answers each lies in here
    answer: Callable[[Path, Answers], None]
    open_backend: Callable[[tuple[Tap, ...]], BoundBackend]
    told: Callable[[str], None]
    source: str = ""
    command: str = ""


def train_probe(job: ProbeJob, recipe: ProbeRecipe) -> About:
    """Train, choose, report, and write the probe."""
    backend, taps = _with_all_taps(job, recipe)
    texts = _texts(job, recipe, backend.eos_ids)
    work = job.folder / "work"
    tried = _tried(job, recipe, Stage(backend, taps, recipe.examples, work / "states"), texts)
    shifts = sorted({shift for _, shift in tried})
    taps = tuple(dict.fromkeys(_best(tried, shift).tap for shift in shifts))
    backend = job.open_backend(taps)
    again = _tried(job, recipe, Stage(backend, taps, recipe.refit, work / "refit"), texts)
    by_shift = [again[_best(tried, shift).tap, shift] for shift in shifts]
    found = Findings.of(job.told, recipe, backend, tried, by_shift, texts)
    chosen = max(by_shift, key=lambda candidate: candidate.validation.f1)
    about = _about(job, recipe, backend, chosen, found)
    save(job.folder, chosen.weight, about)
    report.write(job.folder, about, found.kept)
    for folder in (work / "states", work / "refit"):  # gigabytes, for no other run
        shutil.rmtree(folder)
    return about


@frozen(eq=False)
class Stage:
    """Taps to look at, by how many states of all answers together, kept in a folder."""

    backend: BoundBackend
    taps: tuple[Tap, ...]
    examples: int
    folder: Path


def _tried(job: ProbeJob, recipe: ProbeRecipe, stage: Stage, texts: Sequence[Text]) -> dict[tuple[Tap, int], Candidate]:
    """By tap and shift the penalty that does best on validation prompts."""
    seen = [text for text in texts if text.role != "test"]
    how = recipe.labelling(special_ids(stage.backend.tokenizer))
    labels = [how.of(text.ids, text.prompt_length, text.ended) for text in seen]
    model: Any = stage.backend.model  # type: ignore[attr-defined]
    draws = Draws(max(1, stage.examples // len(seen)), recipe.seed, f"{fingerprint(model)} {model.dtype}")
    for done in activations.gather(stage.backend, stage.taps, seen, labels, draws, stage.folder):
        job.told(f"{done} of {len(seen)} texts read")
    found: dict[tuple[Tap, int], Candidate] = {}
    for number, tap in enumerate(stage.taps):
        own = list(_candidates(tap, activations.read(stage.folder, number), seen, how.shifts))
        found |= {(tap, each.shift): each for each in own}
        job.told(f"{tap}: " + ", ".join(f"shift {each.shift}: F1 {each.validation.f1:.4f}" for each in own))
    return found


def _best(tried: Mapping[tuple[Tap, int], Candidate], shift: int) -> Candidate:
    """The one of that shift with the best F1 on validation prompts."""
    return max((each for each in tried.values() if each.shift == shift), key=lambda each: each.validation.f1)


def _texts(job: ProbeJob, recipe: ProbeRecipe, eos_ids: frozenset[int]) -> list[Text]:
    """The answers to all prompts, in the order of the prompts."""
    found: dict[str, list[Text]] = defaultdict(list)
    by_key = {prompt.key: prompt for prompt in job.prompts}
    for number in range(recipe.samples + 1):
        folder = job.answers / ("greedy" if number == 0 else f"sampled-{number}")
        job.answer(folder, recipe.answers(number))
        for sample in (sample for path in shards(folder) for sample in read_samples(path) if sample.key in by_key):
            prompt = by_key[sample.key]
            ids, role = tuple(sample.ids.tolist()), _role(prompt, recipe)
            ended = ids[-1] in eos_ids or len(ids) - sample.prompt_length < recipe.max_new_tokens
            found[sample.key].append(Text(ids, sample.prompt_length, role, prompt.family, number == 0, ended))
    texts = [text for key in by_key for text in found[key]]
    for role in ("learn", "validation", "test"):
        if not any(text.role == role for text in texts):
            raise RequestError(f"no answer of {len(texts)} is for '{role}'; give more prompts than {len(by_key)}")
    return texts


def _role(prompt: Prompt, recipe: ProbeRecipe) -> str:
    """What a prompt is for, by its content alone."""
    if prompt.held_out(recipe.test):
        return "test"
    return "validation" if prompt.held_out(recipe.test + recipe.validation) else "learn"


def _with_all_taps(job: ProbeJob, recipe: ProbeRecipe) -> tuple[BoundBackend, tuple[Tap, ...]]:
    """The target with every tap that is tried; loaded twice, since only a loaded one says how many layers it has."""
    model: Any = job.open_backend(()).model  # type: ignore[attr-defined]
    layers = range(0, len(decoder_layers(model)), recipe.every)
    del model
    kinds = TAP_KINDS if recipe.kinds == "all" else (recipe.kinds,)
    taps = tuple(Tap(layer, kind) for layer in layers for kind in kinds)  # type: ignore[arg-type]
    return job.open_backend(taps), taps


def _candidates(tap: Tap, examples: Examples, texts: Sequence[Text], shifts: Sequence[int]) -> Iterator[Candidate]:
    """For every shift the penalty that does best on validation prompts."""
    roles = np.array([text.role for text in texts])[examples.texts]
    learn, kept = (torch.from_numpy(roles == role) for role in ("learn", "validation"))
    tried: dict[int, list[Candidate]] = {shift: [] for shift in shifts}
    fitted = fit(examples.states[learn], examples.labels[learn], PENALTIES)
    for penalty, weights in zip(PENALTIES, fitted, strict=True):
        scores = (examples.states[kept] @ weights).sigmoid().double().numpy()
        for column, shift in enumerate(shifts):
            own, labels = scores[:, column], examples.labels[kept][:, column].numpy()
            threshold = best_threshold(own, labels) if len(own) else 0.5
            found = quality(own, labels, threshold)
            if found is not None:
                weight = weights[:, column].contiguous()
                tried[shift].append(Candidate(tap, shift, penalty, weight, threshold, found))
    for found_for in tried.values():
        if not found_for:
            raise RequestError("validation answers copy nothing, or nothing else; give prompts of more kinds")
        yield max(found_for, key=lambda candidate: candidate.validation.f1)


def _about(job: ProbeJob, recipe: ProbeRecipe, backend: BoundBackend, chosen: Candidate, found: Findings) -> About:
    [metrics] = [each for each in found.kept["test"] if each["shift"] == chosen.shift]
    model: Any = backend.model  # type: ignore[attr-defined]
    return About(
        tap=str(chosen.tap),
        shift=chosen.shift,
        threshold=chosen.threshold,
        min_match=recipe.min_match,
        hidden_size=len(chosen.weight),
        label_size=recipe.label_size,
        labels=recipe.labels,
        follows=recipe.follows,
        penalty=chosen.penalty,
        metrics=metrics,
        target=job.spec.source,
        target_fingerprint=fingerprint(model),
        origin={"prompts": job.source, "command": job.command, "recipe": recipe.kept},
    )


__all__ = ["ProbeJob", "train_probe"]
