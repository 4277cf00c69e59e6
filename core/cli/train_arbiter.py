"""`draftmux train arbiter`: the learned arbiter of the verifier `cospec-arbiter`, on problems that can be checked."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import attrs
import click

from draftmux.backends.parallel.ranks import Ranks, apart
from draftmux.cli.options import taken, threads_option, use_threads
from draftmux.errors import PluginError, RequestError
from draftmux.plugins import registry
from draftmux.training.processes import processes
from draftmux.verifiers.cospec.recipe import ArbiterRecipe, Objective
from draftmux.verifiers.cospec.reward import Reward

if TYPE_CHECKING:
    from draftmux.pipeline import Pipeline
    from draftmux.protocols import Task


def task_of(name: str) -> Task:
    """A published task; RequestError when there is none of that name, or when it cannot be made."""
    known = {entry.name: entry for entry in registry() if entry.kind == "task"}
    if name not in known:
        raise RequestError(f"no package publishes a task '{name}'; there are {', '.join(sorted(known))}")
    try:
        task: Task = known[name].load()()
    except Exception as error:  # somebody else's code
        raise PluginError(f"task '{name}' cannot be made without arguments: {error!r}") from error
    return task


def open_pair(path: str, overrides: tuple[str, ...]) -> tuple[Pipeline, str]:
    """The pipeline on the backend `transformers`, whose passes see weights that change, and its one drafter's name;
    RequestError unless that is a draft model."""
    from draftmux.config.load import read_pipeline
    from draftmux.models.load import pick_device
    from draftmux.models.shards import refuse_device
    from draftmux.pipeline import load

    spec = read_pipeline(path, overrides)
    if Ranks.read(os.environ) is not None:
        for model in spec.models.values():
            refuse_device(model, pick_device("auto").type)
    drafters = spec.drafters
    if len(drafters) != 1 or any(each.use != "sps" for each in drafters.values()):
        raise RequestError(
            f"{path}: an arbiter is trained with one drafter, `use: sps`; this pipeline has "
            f"{', '.join(f'{name} ({each.use})' for name, each in drafters.items()) or 'none'}"
        )
    [name] = drafters
    fixed = ["verifier={use: exact-match}", f"router={{use: fixed, drafter: {name}}}", "on_plugin_error=raise"]
    if spec.backend.use != "transformers":
        fixed.append("backend={use: transformers}")
    with apart():
        return load(path, [*overrides, *fixed]), name


def make_folder(out: Path) -> None:
    """Before anything else is done; RequestError when it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise RequestError(f"--out {out} cannot be written to: {error}; give another folder") from error


def train(given: dict[str, Any], report: Any, command: str) -> None:
    """From the command line's values to an arbiter's folder."""
    from draftmux.protocols import Resources
    from draftmux.verifiers.cospec.judge import judge_of
    from draftmux.verifiers.cospec.mining import Rig
    from draftmux.verifiers.cospec.new_network import studied
    from draftmux.verifiers.cospec.problems import digest, parted, read_problems
    from draftmux.verifiers.cospec.train import ArbiterJob, train_arbiter

    processes()
    use_threads(given["threads"])
    make_folder(given["out"])
    recipe, reward, objective = (taken(cls, given) for cls in (ArbiterRecipe, Reward, Objective))
    task, problems = task_of(given["task"]), read_problems(given["problems_file"], given["limit"])
    pipeline, drafter = open_pair(given["pipeline"], given["overrides"])
    parts = pipeline.parts
    resources = Resources(pipeline.tokenizer, parts.backend, pipeline.spec.models, parts.drafters)
    spec = pipeline.spec.drafters[drafter].plugin
    named = pipeline.spec.models[spec.model].source if spec.model else f"its first {spec.layers} layers"
    named += f" with {spec.adapter}" if spec.adapter else ""
    target: Any = parts.backend
    arbiter = studied(target.model, drafter, (pipeline.spec.models["target"].source, named), resources, recipe)
    generation = attrs.evolve(pipeline.spec.generation, temperature=0.0, max_new_tokens=recipe.max_new_tokens)
    rig = Rig(parts, pipeline.tokenizer, generation, recipe.batch)
    fitting = [problem for problem in problems if rig.fits(problem)]
    if len(fitting) < len(problems):
        left = len(problems) - len(fitting)
        click.echo(f"{left} problems are left out: their prompts are longer than the target's positions", err=True)
    learn, held = parted(fitting, recipe.held_out)
    source = f"{len(problems)} of {given['problems_file']}, task {given['task']}"
    judge = given["judge"] and judge_of(given["judge"], given["judge_model"])
    judged_by = " ".join(filter(None, (given["judge"], given["judge_model"])))
    about = {
        "target": arbiter.about.target_fingerprint,
        "draft": [named, arbiter.about.draft_fingerprint],
        "drafter": attrs.asdict(spec),
        "task": given["task"],
        "generation": attrs.asdict(generation),
        "problems": digest(learn, held),
    }
    job = ArbiterJob(rig, arbiter, task, report, about, learn, held, given["out"], judge, judged_by, source, command)
    made = train_arbiter(job, recipe, reward, objective)
    solved = made.metrics["thresholds"][str(made.threshold)]
    click.echo(f"threshold {made.threshold}: {solved:.3f} of held-out problems solved")


def shared(command: Any) -> Any:
    """The options that say what is trained on what."""
    for decorate in (
        threads_option,
        click.option(
            "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Override a value of the pipeline."
        ),
        click.option("--judge-model", help="Which model of the judge's endpoint is asked."),
        click.option(
            "--judge",
            help="What labels mismatches in place of their outcomes: URL of an OpenAI-compatible endpoint (its key in "
            "OPENAI_API_KEY), or module:function, from a mismatch as text to a score from 0 to 10.",
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Only the first problems."),
        click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write."),
        click.option(
            "--task",
            required=True,
            help="What says that an answer is right: exact-number, exact-string, unit-tests, or a published one.",
        ),
        click.option(
            "--problems",
            "problems_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            required=True,
            help="JSON Lines of prompts with `reference`, and `family` if there are several.",
        ),
        click.option("--pipeline", required=True, help="Pipeline with the target and one drafter, `use: sps`."),
    ):
        command = decorate(command)
    return command
