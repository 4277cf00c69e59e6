"""The report on a terminal."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from draftmux.bench.comparable import PLAIN

if TYPE_CHECKING:
    from rich.console import Console

    from draftmux.bench.summary import Report, Run

NONE = "-"
COLUMNS = (
    "tokens\n/s",
    "speed\n-up",
    "95 %\ninterval",
    "tokens\n/pass",
    "accepted\n/drafted",
    "identical",
    "outside\ntarget",
)


def print_report(report: Report, console: Console) -> None:
    """Table, what to know about it, the machine, and the command that makes it again."""
    console.print(make_table(report))
    for note in report.notes:
        console.print(Text(f"- {note}"))
    for skipped in report.skipped:
        console.print(Text(f"- skipped: {skipped}"))
    console.print(Text(str(report.machine["line"])), style="dim")
    console.print(Text(report.command), style="dim", soft_wrap=True)


def make_table(report: Report) -> Table:
    """One line a contender. An interval around 1, which is no difference, is dimmed."""
    prompts = report.runs[0].agreement.prompts
    partial = f", partial: {report.stopped}" if report.stopped else ""
    title = Text(f"{report.suite}: {prompts} prompts{partial}")
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    table.add_column("pipeline")
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for run in report.runs:
        table.add_row(*_cells(run))
    return table


def _cells(run: Run) -> list[Text]:
    name = Text(fill(run.pipeline, 16))
    if not run.lossless:
        name.append(" lossy", style="bold yellow")
    metrics = run.metrics
    drafted = NONE if metrics is None else f"{metrics.accepted}/{metrics.drafted}"
    return [
        name,
        Text(f"{run.totals.rate:.1f}"),
        Text(times(run.speedup)),
        Text(interval_text(run), style="dim" if no_difference(run) else ""),
        Text(number(run.mean_acceptance_length)),
        Text(drafted),
        Text("in law" if run.agreement.in_law else f"{run.agreement.identical}/{run.agreement.prompts}"),
        Text(percent(run.outside_model)),
    ]


def no_difference(run: Run) -> bool:
    """Whether the interval of the speed-up contains 1."""
    return (
        run.pipeline != PLAIN
        and run.speedup_interval is not None
        and run.speedup_interval[0] <= 1 <= run.speedup_interval[1]
    )


def interval_text(run: Run) -> str:
    """`[1.41, 1.66]`, or a dash where no interval can be had."""
    if run.pipeline == PLAIN or run.speedup_interval is None:
        return NONE
    return "[{:.2f}, {:.2f}]".format(*run.speedup_interval)


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or a dash where there is none."""
    return NONE if value is None else f"{value:.{digits}f}"


def times(value: float | None) -> str:
    """A ratio such as `1.52x`, or a dash where there is none."""
    return NONE if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A share in per cent, or a dash where there is none."""
    return NONE if value is None else f"{100 * value:.1f} %"
