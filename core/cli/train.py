"""`draftmux train`: trains the parts that drafters and routers learn. Each can be stopped and goes on where it was."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from draftmux.backends.parallel.ranks import apart
from draftmux.cli import train_arbiter
from draftmux.cli.options import options_of, taken, threads_option, use_threads
from draftmux.drafters.eagle3.format import DEFAULT_TAPS
from draftmux.drafters.eagle3.recipe import HeadRecipe
from draftmux.drafters.sps.recipe import DraftRecipe
from draftmux.errors import RequestError
from draftmux.routers.accepted_length.recipe import RegressorRecipe
from draftmux.routers.linear_probe.recipe import ProbeRecipe
from draftmux.training.processes import alone, processes, together
from draftmux.training.recipe import Answers, Magpie
from draftmux.types import Tap
from draftmux.verifiers.cospec.recipe import ArbiterRecipe, Objective
from draftmux.verifiers.cospec.reward import Reward

if TYPE_CHECKING:
    from draftmux.models.source import ModelSpec
    from draftmux.training.answers import Sample
    from draftmux.training.job import Job
    from draftmux.training.prompts import Prompt


class Training(click.Group):
    """The command group. Its commands may run in several processes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with together():
            return super().invoke(ctx)


@click.group(cls=Training)
def train() -> None:
    """Train a drafter's learned part on the target's own answers."""


def shared(command: Any) -> Any:
    """Options that all parts have."""
    for decorate in (
        threads_option,
        click.option("--dtype", default="auto", show_default=True, help="Number format of the target."),
        click.option(
            "--answers",
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder of the target's answers, for several runs to share. Default: OUT/work/answers.",
        ),
        click.option("--limit", type=click.IntRange(min=1), help="Only the first prompts."),
        click.option("--split", default="train", show_default=True, help="Of a data set on the hub."),
        click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder to write."),
        click.option("--prompts", required=True, help="JSON Lines of chats or prompts, or a `datasets` name."),
        click.option("--target", required=True, help="Model whose drafter this is: hub id, folder, published name."),
    ):
        command = decorate(command)
    return command


def answers(
    spec: ModelSpec, prompts: list[Prompt], folder: Path, how: Answers, taps: tuple[Tap, ...]
) -> tuple[list[Sample], list[Sample]]:
    """The target's answers, generated where they are missing: to learn from, and held out."""
    from draftmux.training.collect import split

    answer(spec, prompts, taps, folder, how)
    return split(folder, taps, prompts, how.held_out)


def target(spec: ModelSpec, taps: tuple[Tap, ...]) -> Any:
    """The target with these states to be read."""
    from draftmux.backends.static.backend import StaticBackend

    with apart():
        return StaticBackend(self_check=False).bind(spec, taps)


def answer(spec: ModelSpec, prompts: list[Prompt], taps: tuple[Tap, ...], folder: Path, how: Answers) -> None:
    """Generate the target's answers where they are missing."""
    from draftmux.training.collect import collect

    settings = {"source": spec.source, "dtype": spec.dtype}
    state = processes()
    if state.is_main_process:  # of several, one answers for all
        for there in collect(partial(target, spec), settings, taps, prompts, folder, how):
            click.echo(f"{there} of {len(prompts)} prompts answered", err=True)
    state.wait_for_everyone()


def command_line() -> str:
    """What was typed, for a model card."""
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            given = context.params[parameter.name or ""]
            for value in given if isinstance(given, tuple) else (given,):
                words += [parameter.opts[0], str(value)]
    return shlex.join(words)


@train.command()
@shared
@click.option(
    "--tap", "taps", multiple=True, metavar="LAYER.KIND", help="Hidden state to read, low to high. Repeatable."
)
@options_of(Answers, HeadRecipe)
def eagle3(**given: Any) -> None:
    """Train an EAGLE-3 head by training-time test, and write it in the layout of speculators."""
    from draftmux.drafters.eagle3.train import train_head
    from draftmux.training.optimizers import check_optimizer

    how, recipe = taken(Answers, given), taken(HeadRecipe, given)
    check_optimizer(recipe.schedule)
    try:
        taps = tuple(Tap.parse(text) for text in given["taps"]) or DEFAULT_TAPS
    except ValueError as error:
        raise click.UsageError(f"--tap: {error}") from error
    if odd := [str(tap) for tap in taps if tap.kind != "resid_post"] or len(set(taps)) < len(taps):
        raise click.UsageError(f"--tap: a head's layout knows outputs of layers (resid_post), each once; got {odd}")
    with _job(given, how) as job:
        train_head(job, recipe, taps)


@train.command()
@shared
@options_of(Answers, DraftRecipe)
def draft(**given: Any) -> None:
    """Distil a draft model: a LoRA, in PEFT's layout, on the target's first layers."""
    from draftmux.drafters.sps.train import train_draft
    from draftmux.training.optimizers import check_optimizer

    how, recipe = taken(Answers, given), taken(DraftRecipe, given)
    check_optimizer(recipe.schedule)
    with _job(given, how) as job:
        train_draft(job, recipe)


@train.command()
@shared
@options_of(ProbeRecipe)
def probe(**given: Any) -> None:
    """Train a copy probe for the router linear-probe (SwitchSD) on the target's own answers and hidden states.

    Prompts should be of several kinds, from those whose answers copy much to those that copy nothing; a line may say
    its `family`.
    """
    from draftmux.routers.linear_probe.train import ProbeJob, train_probe

    alone("train probe")
    recipe = taken(ProbeRecipe, given)
    spec, prompts, answered = _asked(given)
    job = ProbeJob(
        spec,
        prompts,
        given["out"],
        answered,
        partial(answer, spec, prompts, ()),
        partial(target, spec),
        partial(click.echo, err=True),
        f"{len(prompts)} of {given['prompts']}",
        command_line(),
    )
    about = train_probe(job, recipe)
    click.echo(f"{about.tap}, shift {about.shift}; see {given['out'] / 'report.html'}")


@train.command("accepted-length")
@shared
@options_of(RegressorRecipe)
@click.option("--probe", help="Folder of a probe whose score is to be a feature.")
def accepted_length(probe: str | None, **given: Any) -> None:
    """Train the regressor of the router accepted-length on copies along the target's own greedy answers."""
    from draftmux.models.load import load_tokenizer
    from draftmux.routers.accepted_length.train import RegressorJob, train_regressor
    from draftmux.routers.linear_probe.scorer import scores_of, unseen_share

    alone("train accepted-length")
    recipe = taken(RegressorRecipe, given)
    spec, prompts, answered = _asked(given)
    scores, mark = (None, "") if probe is None else scores_of(probe, partial(target, spec))
    job = RegressorJob(
        spec,
        prompts,
        given["out"],
        answered,
        partial(answer, spec, prompts, ()),
        load_tokenizer(spec),
        scores,
        mark,
        1.0 if probe is None else unseen_share(probe),
        f"{len(prompts)} of {given['prompts']}",
        command_line(),
    )
    metrics = train_regressor(job, recipe).metrics
    click.echo(f"R2 {metrics['r2']:.3f} on {metrics['copies']['test']} copies of test prompts")


@train.command()
@train_arbiter.shared
@options_of(ArbiterRecipe, Reward, Objective)
def arbiter(**given: Any) -> None:
    """Train an arbiter for the verifier cospec-arbiter: labels of mismatches by their outcome, then whole decodings
    (GRPO). What it learns may change the text: the verifier is lossy."""
    train_arbiter.train(given, told, command_line())


def _asked(given: dict[str, Any]) -> tuple[ModelSpec, list[Prompt], Path]:
    """Of which target, the prompts, and the folder of its answers."""
    from draftmux.models.source import ModelSpec
    from draftmux.training.prompts import read_prompts

    processes()
    use_threads(given["threads"])
    spec = ModelSpec(source=given["target"], dtype=given["dtype"])
    prompts = read_prompts(given["prompts"], given["split"], given["limit"])
    return spec, prompts, given["answers"] or given["out"] / "work" / "answers"


@train.command()
@click.option("--target", required=True, help="Model that writes them: hub id, folder, published name.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="JSON Lines file to write.")
@click.option(
    "--system",
    "systems",
    multiple=True,
    help="System message that says what users ask about; repeatable, in turn. Default: the chat template's own.",
)
@click.option("--dtype", default="auto", show_default=True, help="Number format of the target.")
@threads_option
@options_of(Magpie)
def prompts(target: str, out: Path, systems: tuple[str, ...], dtype: Any, threads: int | None, **given: Any) -> None:
    """Let the target write prompts to train on (Magpie): what it takes for the text of a user, one chat a line.

    System messages steer what is written, and are not part of the prompts. The same command goes on where it stopped.
    """
    from draftmux.backends.static.backend import StaticBackend
    from draftmux.models.source import ModelSpec
    from draftmux.training.magpie import settings_of, write_prompts, written

    alone("train prompts")
    use_threads(threads)
    how, spec, messages = taken(Magpie, given), ModelSpec(source=target, dtype=dtype), systems or (None,)
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = settings_of(spec, messages, how)
    done = written(out, settings)
    backend = StaticBackend(self_check=False).bind(spec, ())
    with out.open("a", encoding="utf-8", newline="\n") as file:
        for number, text in write_prompts(backend, messages, how, frozenset(done)):
            line = {"id": f"{settings}-{number}", "messages": [{"role": "user", "content": text}]}
            file.write(json.dumps(line) + "\n")
            file.flush()
            done.add(number)
            if len(done) % 100 == 0:
                click.echo(f"{len(done)} of {how.count} prompts written", err=True)
    if not done:
        raise RequestError(f"all {how.count} prompts came out empty; take another target, --system or --temperature")
    lost = f"; {how.count - len(done)} came out empty" if len(done) < how.count else ""
    click.echo(f"{len(done)} prompts written to {out}{lost}", err=True)


@contextmanager
def _job(given: dict[str, Any], how: Answers) -> Iterator[Job]:
    """What a training run is told. When it is through, its held-out prompts are written for `draftmux bench`."""
    from draftmux.training.job import Job
    from draftmux.training.prompts import write_held_out

    spec, prompts, answered = _asked(given)
    collect = partial(answers, spec, prompts, answered, how)
    source = f"{len(prompts)} of {given['prompts']}"
    job = Job(spec, given["out"], collect, told, how.held_out, source, command_line())
    yield job
    if job.writes:
        write_held_out(job.work / "held-out.jsonl", prompts, how.held_out)


def told(step: int, figures: dict[str, Any]) -> None:
    """One line of progress."""
    from draftmux.training.card import text_of

    click.echo(f"step {step}: {'; '.join(f'{name} {text_of(value)}' for name, value in figures.items())}", err=True)
