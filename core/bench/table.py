"""The report on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from draftmux.bench.comparable import PLAIN

if TYPE_CHECKING:
    from rich.console import Console

    from draftmux.bench.summary import Report, Run

NONE = "-"
COLUMNS = ("tokens/s", "speed-up [95 %]", "tokens/pass", "accepted/drafted", "identical", "outside target")


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
    """One line a contender."""
    prompts = report.runs[0].agreement.prompts
    partial = f", partial: {report.stopped}" if report.stopped else ""
    table = Table(title=Text(f"{report.suite}: {prompts} prompts{partial}"), title_justify="left")
    table.add_column("pipeline", overflow="fold")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for run in report.runs:
        table.add_row(*_cells(run))
    return table


def _cells(run: Run) -> list[Text]:
    name = Text(run.pipeline) if run.lossless else Text.assemble(run.pipeline, " ", ("lossy", "bold yellow"))
    metrics = run.metrics
    drafted = NONE if metrics is None else f"{metrics.accepted}/{metrics.drafted}"
    cells = [
        f"{run.totals.rate:.1f}",
        speedup_text(run),
        number(run.mean_acceptance_length),
        drafted,
        f"{run.agreement.identical}/{run.agreement.prompts}",
        percent(run.outside_model),
    ]
    return [name, *map(Text, cells)]


def speedup_text(run: Run) -> str:
    """`1.52x [1.41, 1.66]`; an interval around 1 is no difference."""
    if run.speedup is None:
        return NONE
    if run.pipeline == PLAIN or run.speedup_interval is None:
        return f"{run.speedup:.2f}x"
    low, high = run.speedup_interval
    return f"{run.speedup:.2f}x [{low:.2f}, {high:.2f}]" + (" no difference" if low <= 1 <= high else "")


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or a dash where there is none."""
    return NONE if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share in per cent, or a dash where there is none."""
    return NONE if value is None else f"{100 * value:.1f} %"
