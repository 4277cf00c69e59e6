"""Bars of speed-ups with their intervals, and acceptance by position, as a PNG."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.bench.summary import Report, Run

COLOURS = ("#2a78d6", "#d9822b", "#2f9e6e", "#b5499a", "#8a6d3b", "#5f6bd8", "#c0392b", "#6b8e23", "#008b8b", "#777777")


@frozen
class Theme:
    """Paper and ink."""

    paper: str
    ink: str


LIGHT = Theme("#ffffff", "#1f2328")
DARK = Theme("#16191d", "#e4e7eb")


def draw(report: Report, theme: Theme = LIGHT) -> bytes:
    """The PNG file's bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = {run.pipeline: COLOURS[i % len(COLOURS)] for i, run in enumerate(report.runs)}
    drafting = [run for run in report.runs if run.acceptance_by_position]
    height = 2.2 + 0.42 * len(report.runs)
    figure = Figure(figsize=(10 if drafting else 6, max(3.4, height)), layout="constrained", facecolor=theme.paper)
    left, *right = figure.subplots(1, 2 if drafting else 1, squeeze=False)[0]
    _bars(left, report.runs, colours, theme)
    for axes in right:
        _positions(axes, drafting, colours, theme)
    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()


def _bars(axes: Any, runs: Sequence[Run], colours: dict[str, str], theme: Theme) -> None:
    for place, run in enumerate(runs):
        speedup = run.speedup or 0.0
        low, high = run.speedup_interval or (speedup, speedup)
        error = [[max(0.0, speedup - low)], [max(0.0, high - speedup)]]
        axes.barh(place, speedup, height=0.62, color=colours[run.pipeline], alpha=0.85)
        axes.errorbar(speedup, place, xerr=error, color=theme.ink, capsize=3, linewidth=1)
        axes.annotate(f"{speedup:.2f}x", (max(speedup, high), place), (6, 0), va="center", **_offset(theme))
    axes.axvline(1, color=theme.ink, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(runs)), [_plain_text(run.pipeline) for run in runs])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    _dress(axes, "Speed-up over plain decoding (95 % interval)", theme)


def _offset(theme: Theme) -> dict[str, Any]:
    return {"textcoords": "offset points", "color": theme.ink, "fontsize": 9}


def _positions(axes: Any, runs: Sequence[Run], colours: dict[str, str], theme: Theme) -> None:
    for run in runs:
        shares = run.acceptance_by_position
        label = _plain_text(run.pipeline)
        axes.plot(range(1, len(shares) + 1), shares, "o-", markersize=4, color=colours[run.pipeline], label=label)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("position in the draft", color=theme.ink)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(facecolor=theme.paper, edgecolor="none", labelcolor=theme.ink, fontsize=9)
    _dress(axes, "Drafted tokens accepted, by position", theme)


def _dress(axes: Any, title: str, theme: Theme) -> None:
    axes.set_facecolor(theme.paper)
    axes.set_title(title, color=theme.ink, fontsize=11, loc="left")
    axes.tick_params(colors=theme.ink, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.ink)


def _plain_text(name: str) -> str:
    """A name as it is: matplotlib would read dollar signs as formulas."""
    return name.replace("$", r"\$")
