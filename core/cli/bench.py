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
from click.core import ParameterSource

from draftmux.bench.suites import SUITES, from_file
from draftmux.cli.options import set_option, threads_option, use_threads
from draftmux.cli.output import Twin, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from draftmux.bench.contenders import LineUp
    from draftmux.bench.cost import CostReport
    from draftmux.bench.suites import Suite
    from draftmux.bench.summary import Report

    Files = Iterator[tuple[str, Callable[[Path], object]]]  # each by its option, and how it is made

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
    cost: bool

    def check(self) -> None:
        """UsageError for options that do not go together, before anything expensive is done."""
        if self.cost:
            self._check_cost()
        elif (self.suite is None) == (self.prompts is None):
            raise click.UsageError("give one of --suite NAME and --prompts FILE.jsonl")
        if self.baseline is not None and self.batch > 1:
            raise click.UsageError(f"--baseline {self.baseline} runs prompt by prompt; leave out --batch {self.batch}")
        for name in ("json", "plot", "html"):
            path: Path | None = getattr(self, name)
            if path is not None and not os.path.isdir(path.absolute().parent):
                raise click.UsageError(f"--{name} {path}: there is no folder {path.absolute().parent}; create it first")

    def _check_cost(self) -> None:
        for name in ("suite", "prompts", "limit", "max_new_tokens", "baseline"):
            if getattr(self, name) is not None:
                raise click.UsageError(f"--cost runs no prompts; leave out --{name.replace('_', '-')}")
        context = click.get_current_context()
        for name in ("warmup", "repeat", "batch", "seed"):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--cost runs no prompts; leave out --{name}")
        if len(self.pipelines) > 1:
            raise click.UsageError("--cost measures the target of one pipeline; name just one")


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
@click.option("--cost", is_flag=True, help="Measure what a target pass costs by its rows instead; takes no prompts.")
@click.option("--seed", type=COUNT, default=0, show_default=True, help="Draws orders and bootstrap samples.")
@set_option
@threads_option
@click.pass_context
def bench(context: click.Context, /, **given: Any) -> None:
    """Compare pipelines with plain decoding, side by side.

    Each prompt is run by every contender before the next one, in an order drawn anew, all on one loaded target: plain
    decoding (the first pipeline without drafters), each PIPELINE (a file, or a shipped pipeline's name), and with
    --baseline transformers' own generate. An interrupt reports what has been measured so far.

    With --cost no prompts are run: passes of PIPELINE's target over 1 to 208 rows are timed, which budgets without
    `max_nodes` and with `max_nodes: auto` follow. What is measured replaces what was remembered of this target.
    """
    options = Options(**given)
    options.check()
    command = shlex.join(["draftmux", "bench", *context.meta[ARGUMENTS]])
    if options.cost:
        context.exit(1 if _cost(options, command) else 0)
    suite = _suite(options)
    line_up, generation = _line_up(options)
    report, error = _measure(options, line_up, suite, generation, command)
    lost = _write(report, options, line_up.tokenizer)
    if error is not None:
        raise error
    if report.stopped or lost:
        context.exit(130 if report.stopped else 1)


def _suite(options: Options) -> Suite:
    suite = SUITES[options.suite]() if options.suite is not None else from_file(options.prompts or Path())
    return suite.first(options.limit)


def _cost(options: Options, command: str) -> list[str]:
    """Measure the target of the one pipeline, and write what was asked for. Gives what could not be written."""
    from draftmux.config.load import read_pipeline

    spec = read_pipeline(options.pipelines[0], options.overrides)

    from draftmux.bench.agreement import logits_dtype
    from draftmux.bench.cost import REPEATS, CostReport, print_cost
    from draftmux.bench.machine import describe
    from draftmux.binding import bind_backend
    from draftmux.cost_cache import keep
    from draftmux.costs import measure_backend

    use_threads(options.threads)
    backend = bind_backend(spec)
    with _progress(None) as tick:
        curve = measure_backend(backend, REPEATS, lambda done, total: tick(done, "timing passes", total))
    keep(getattr(backend, "cost_key", None), curve)
    target = spec.models["target"].source if "target" in spec.models else spec.backend.use
    settings = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "backend": spec.backend.use}
    machine = describe(backend, logits_dtype(backend))
    report = CostReport(spec.origin, target, curve, settings, machine, command)
    return _deliver(options, _cost_files(report), partial(print_cost, report))


def _cost_files(report: CostReport) -> Files:
    from draftmux.bench.cost import draw_cost, render_cost, write_cost

    yield from (
        ("json", partial(write_cost, report)),
        ("plot", lambda path: path.write_bytes(draw_cost(report))),
        ("html", lambda path: path.write_text(render_cost(report), "utf-8")),
    )


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
def _progress(total: int | None) -> Iterator[Callable[..., None]]:
    """A bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done, what, of=total: progress.update(task, completed=done, description=what, total=of)


def _write(report: Report, options: Options, tokenizer: Any) -> list[str]:
    from draftmux.bench.table import print_report

    return _deliver(options, _files(report, tokenizer), partial(print_report, report))


def _deliver(options: Options, files: Files, show: Callable[[Console], None]) -> list[str]:
    """Files first: they must not depend on a terminal that may be gone. Says and gives what could not be written."""
    from rich.console import Console

    lost = [told for name, save in files if (told := _saved(name, getattr(options, name), save))]
    shown = Twin()
    show(Console(file=shown))
    try:
        write(shown.getvalue())
    finally:
        for told in lost:
            click.echo(f"Error: {told}", err=True)
    return lost


def _files(report: Report, tokenizer: Any) -> Files:
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
