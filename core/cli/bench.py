"""`draftmux bench`: pipelines side by side with plain decoding. Reads options, runs, writes what was asked for."""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, frozen

from draftmux.bench.suites import SUITES, from_file
from draftmux.cli.options import set_option, threads_option, use_threads
from draftmux.cli.output import Twin, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftmux.bench.contenders import LineUp
    from draftmux.bench.run import Tick
    from draftmux.bench.suites import Suite
    from draftmux.bench.summary import Report

ARGUMENTS = "draftmux.bench.arguments"
FILE = click.Path(dir_okay=False, path_type=Path)
POSITIVE = click.IntRange(min=1)
COUNT = click.IntRange(min=0)


class _Recorded(click.Command):
    """A command that remembers its arguments as they were typed, for the report."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


@frozen
class Options:
    """The command line, parsed."""

    pipelines: tuple[str, ...]
    suite: str | None
    prompts: Path | None
    limit: int | None
    max_new_tokens: int | None
    baseline: str | None
    json: Path | None
    plot: Path | None
    html: Path | None
    overrides: tuple[str, ...]
    threads: int | None
    warmup: int
    repeat: int
    batch: int
    seed: int

    def check(self) -> None:
        """UsageError for options that do not go together, before anything expensive is done."""
        if (self.suite is None) == (self.prompts is None):
            raise click.UsageError("give one of --suite NAME and --prompts FILE.jsonl")
        if self.baseline is not None and self.batch > 1:
            raise click.UsageError(f"--baseline {self.baseline} runs prompt by prompt; leave out --batch {self.batch}")
        for name in ("json", "plot", "html"):
            path: Path | None = getattr(self, name)
            if path is not None and not os.path.isdir(path.absolute().parent):
                raise click.UsageError(f"--{name} {path}: there is no folder {path.absolute().parent}; create it first")


@click.command("bench", cls=_Recorded)
@click.argument("pipelines", metavar="PIPELINE...", nargs=-1, required=True)
@click.option("--suite", type=click.Choice(sorted(SUITES)), help="A prompt set that is installed.")
@click.option("--prompts", type=FILE, help="Your own: JSON Lines, with `turns` or `prompt` in each line.")
@click.option("--limit", type=POSITIVE, help="Only the first rows.")
@click.option("--max-new-tokens", type=POSITIVE, help="Tokens to generate at most, for all pipelines.")
@click.option(
    "--baseline", type=click.Choice(["transformers"]), help="Also run that library's generate and prompt lookup."
)
@click.option("--json", type=FILE, help="Write all figures.")
@click.option("--plot", type=FILE, help="Draw speed-ups and acceptance by position, as PNG.")
@click.option("--html", type=FILE, help="Write a report that is one HTML file.")
@click.option("--warmup", type=COUNT, default=3, show_default=True, help="Requests a contender that do not count.")
@click.option("--repeat", type=POSITIVE, default=1, show_default=True, help="Runs of each prompt by each contender.")
@click.option("--batch", type=POSITIVE, default=1, show_default=True, help="Prompts that run together.")
@click.option("--seed", type=COUNT, default=0, show_default=True, help="Draws orders and bootstrap samples.")
@set_option
@threads_option
@click.pass_context
def bench(context: click.Context, /, **given: Any) -> None:
    """Compare pipelines with plain decoding, side by side.

    Each prompt is run by every contender before the next one, in an order drawn anew, all on one loaded target: plain
    decoding (the first pipeline without drafters), each PIPELINE (a file, or a shipped pipeline's name), and with
    --baseline transformers' own generate. An interrupt reports what has been measured so far.
    """
    options = Options(**given)
    options.check()
    suite = _suite(options)
    line_up, generation = _line_up(options)
    command = shlex.join(["draftmux", "bench", *context.meta[ARGUMENTS]])
    report, error = _measure(options, line_up, suite, generation, command)
    lost = _write(report, options, line_up.tokenizer)
    if error is not None:
        raise error
    if report.stopped or lost:
        context.exit(130 if report.stopped else 1)


def _suite(options: Options) -> Suite:
    suite = SUITES[options.suite]() if options.suite is not None else from_file(options.prompts or Path())
    return suite.first(options.limit)


def _line_up(options: Options) -> tuple[LineUp, dict[str, Any]]:
    """Read all pipelines, check that they can be compared, and load them; with the settings that they share."""
    from draftmux.bench.comparable import check_comparable, run_names
    from draftmux.config.describe import generation_settings
    from draftmux.config.load import read_pipeline

    length = options.max_new_tokens
    overrides = (*options.overrides, *([f"generation.max_new_tokens={length}"] if length is not None else []))
    names = run_names(options.pipelines)
    specs = {name: read_pipeline(path, overrides) for name, path in zip(names, options.pipelines, strict=True)}
    check_comparable(list(specs.values()))

    from draftmux.bench.contenders import line_up

    use_threads(options.threads)
    shared = generation_settings(next(iter(specs.values())))
    return line_up(specs, with_transformers=options.baseline is not None), shared


def _measure(
    options: Options, line_up: LineUp, suite: Suite, generation: dict[str, Any], command: str
) -> tuple[Report, Exception | None]:
    """Run, then judge. Raises what broke off the run if nothing was measured before."""
    from draftmux.bench.report import make_report
    from draftmux.bench.run import Plan, measure, trial_count

    plan = Plan(options.warmup, options.repeat, options.batch, options.seed)
    with _progress(trial_count(line_up, suite, plan)) as tick:
        measured = measure(line_up, suite, plan, tick)
    if not measured.units:
        raise measured.error or click.Abort()
    settings = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "suite": str(options.prompts or suite.name),
        "rows": len(suite.rows),
        **asdict(plan),
        **generation,
    }
    settings["sampling_seed"], settings["seed"] = settings["seed"], plan.seed
    return make_report(line_up, measured, suite.name, settings, command), measured.error


@contextmanager
def _progress(total: int) -> Iterator[Tick]:
    """A bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, what: progress.update(task, completed=done, description=what)


def _write(report: Report, options: Options, tokenizer: Any) -> list[str]:
    """Files first: they must not depend on a terminal that may be gone. Says and gives what could not be written."""
    from rich.console import Console

    from draftmux.bench.table import print_report

    lost = [told for name, save in _files(report, tokenizer) if (told := _saved(name, getattr(options, name), save))]
    shown = Twin()
    print_report(report, Console(file=shown))
    try:
        write(shown.getvalue())
    finally:
        for told in lost:
            click.echo(f"Error: {told}", err=True)
    return lost


def _files(report: Report, tokenizer: Any) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Each file by its option, and how it is made."""
    from draftmux.bench.report import write_json

    def plot(path: Path) -> None:
        from draftmux.bench.plot import draw

        path.write_bytes(draw(report))

    def html(path: Path) -> None:
        from draftmux.bench.html import render

        path.write_text(render(report, tokenizer), "utf-8")

    yield from (("json", partial(write_json, report)), ("plot", plot), ("html", html))


def _saved(name: str, path: Path | None, save: Callable[[Path], object]) -> str:
    """Save a file if it is asked for; why it could not be, otherwise nothing."""
    try:
        if path is not None:
            save(path)
    except (OSError, UnicodeEncodeError) as error:  # the hours of measuring must not be lost with it
        return f"--{name} {path} could not be written: {getattr(error, 'strerror', None) or error}"
    return ""
