"""What `bench --cost` reports: time of a pass by rows, and what acceptance pays for it. Table, charts, page, JSON."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import frozen
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from draftmux.bench.html import in_both_themes, page_environment
from draftmux.bench.plot import COLOURS, LIGHT, dress, png
from draftmux.bench.table import NONE, number, percent, times
from draftmux.costs import CONTEXT
from draftmux.engine.affordable import AFFORDABLE, NODE_STEPS, affordable_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rich.console import Console

    from draftmux.bench.plot import Theme
    from draftmux.costs import CostCurve

REPEATS = 9
COLUMNS = ("rows", "ms", "ratio to\none row", "break-even\nacceptance")
NEVER = "never"


@frozen
class Point:
    """One size of a pass. `ratio`: its time in plain steps, which is how many tokens it must yield to break even."""

    rows: int
    seconds: float
    ratio: float

    @property
    def break_even(self) -> float | None:
        """Share of drafted tokens that must be accepted for the pass to break even; above 1 it never does."""
        return max(0.0, (self.ratio - 1) / (self.rows - 1)) if self.rows > 1 else None


@frozen
class CostReport:
    """A measured curve, with what it was measured on."""

    pipeline: str
    target: str
    curve: CostCurve
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    command: str

    @property
    def points(self) -> list[Point]:
        """The measured sizes."""
        plain = self.curve.at(1)
        return [Point(r, s, s / plain) for r, s in zip(self.curve.rows, self.curve.seconds, strict=True)]

    @property
    def open_nodes(self) -> int:
        """What a budget without `max_nodes` comes to."""
        return affordable_nodes(lambda nodes: self.curve.at(nodes + 1))

    @property
    def notes(self) -> list[str]:
        """How to read it."""
        return [
            f"Medians of {REPEATS} passes a size after a warm-up: one sequence, up to {CONTEXT} tokens of context. "
            "What drafting takes comes on top.",
            f"A budget without max_nodes comes to {self.open_nodes} nodes here: the most, but at least "
            f"{NODE_STEPS[0]}, whose pass takes up to {AFFORDABLE:g} plain steps. `max_nodes: auto` follows acceptance "
            "too.",
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "pipeline": self.pipeline,
            "target": self.target,
            "curve": [
                {"rows": p.rows, "seconds": p.seconds, "ratio": p.ratio, "break_even": p.break_even}
                for p in self.points
            ],
            "open_nodes": self.open_nodes,
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "command": self.command,
        }


def print_cost(report: CostReport, console: Console) -> None:
    """Table, notes, the machine, and the command that makes it again."""
    title = Text(f"{report.target}: a target pass by rows")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for point in report.points:
        table.add_row(*cells(point))
    console.print(table)
    for note in report.notes:
        console.print(Text(f"- {note}"))
    console.print(Text(str(report.machine["line"])), style="dim")
    console.print(Text(report.command), style="dim", soft_wrap=True)


def cells(point: Point) -> list[str]:
    """One row of the table."""
    share = point.break_even
    pays = NONE if share is None else NEVER if share > 1 else percent(share)
    return [str(point.rows), number(1000 * point.seconds, 3), times(point.ratio), pays]


def draw_cost(report: CostReport, theme: Theme = LIGHT) -> bytes:
    """Both charts side by side; the PNG file's bytes."""
    return png(_charts(report, theme), theme)


def render_cost(report: CostReport) -> str:
    """The page: one HTML file that needs nothing else."""
    environment = page_environment()
    environment.filters["cells"] = cells
    charts = in_both_themes(lambda theme: [png([chart], theme) for chart in _charts(report, theme)])
    return environment.get_template("cost.html.j2").render(report=report, columns=COLUMNS, charts=charts)


def write_cost(report: CostReport, path: Path) -> None:
    """The report as one JSON object."""
    path.write_text(json.dumps(report.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def _charts(report: CostReport, theme: Theme) -> list[Callable[[Any], None]]:
    return [partial(chart, report=report, theme=theme) for chart in (_times, _shares)]


def _times(axes: Any, report: CostReport, theme: Theme) -> None:
    times_ms = [1000 * point.seconds for point in report.points]
    axes.plot([point.rows for point in report.points], times_ms, "o-", markersize=4, color=COLOURS[0])
    axes.axhline(times_ms[0], color=theme.ink, linewidth=0.8, linestyle="--")
    axes.set_ylim(bottom=0)
    _rows(axes, "Time of a pass, ms (dashed: plain decoding)", theme)


def _shares(axes: Any, report: CostReport, theme: Theme) -> None:
    points = [(point.rows, point.break_even) for point in report.points if point.break_even is not None]
    if points:
        axes.plot(*zip(*points, strict=True), "o-", markersize=4, color=COLOURS[1])
    axes.set_ylim(bottom=0)
    _rows(axes, "Share of drafted tokens that breaks even", theme)


def _rows(axes: Any, title: str, theme: Theme) -> None:
    axes.set_xlabel("rows of the pass: root and draft", color=theme.ink)
    dress(axes, title, theme)
