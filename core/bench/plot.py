"""Bars of speed-ups with their intervals, and acceptance by position, as a PNG."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from itertools import zip_longest
from textwrap import fill
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    """Both charts side by side; speed-ups alone if nobody drafted. The PNG file's bytes."""
    return _png(report, theme, [_bars, _positions] if _drafting(report) else [_bars])


def draw_each(report: Report, theme: Theme) -> list[bytes]:
    """The same charts as files of their own, for a page that puts them side by side where there is room."""
    return [_png(report, theme, [chart]) for chart in ([_bars, _positions] if _drafting(report) else [_bars])]


def _drafting(report: Report) -> list[Run]:
    return [run for run in report.runs if run.acceptance_by_position]


def _png(report: Report, theme: Theme, charts: Sequence[Any]) -> bytes:
    colours = {run.pipeline: COLOURS[i % len(COLOURS)] for i, run in enumerate(report.runs)}
    height = max(3.4, 1.4 + 0.42 * len(report.runs))
    return png([partial(chart, report=report, colours=colours, theme=theme) for chart in charts], theme, height)


def png(
    charts: Sequence[Callable[[Any], None]], theme: Theme, height: float = 3.4, columns: int | None = None
) -> bytes:
    """Charts side by side, or so many to a row, each drawn by a function of its axes; the PNG file's bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide = columns or len(charts)
    high = -(-len(charts) // wide)
    figure = Figure(figsize=(5.6 * wide, height * high), layout="constrained", facecolor=theme.paper, dpi=150)
    for axes, chart in zip_longest(figure.subplots(high, wide, squeeze=False).flat, charts):
        axes.set_axis_off() if chart is None else chart(axes)
    buffer = BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _bars(axes: Any, report: Report, colours: dict[str, str], theme: Theme) -> None:
    for place, run in enumerate(report.runs):
        speedup = run.speedup or 0.0
        low, high = run.speedup_interval or (speedup, speedup)
        error = [[max(0.0, speedup - low)], [max(0.0, high - speedup)]]
        axes.barh(place, speedup, height=0.62, color=colours[run.pipeline], alpha=0.85)
        axes.errorbar(speedup, place, xerr=error, color=theme.ink, capsize=3, linewidth=1)
        axes.annotate(f"{speedup:.2f}x", (max(speedup, high), place), (6, 0), va="center", **_offset(theme))
    axes.axvline(1, color=theme.ink, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(report.runs)), [_label(run.pipeline) for run in report.runs])
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    dress(axes, "Speed-up over plain decoding, 95 % interval", theme)


def _offset(theme: Theme) -> dict[str, Any]:
    return {"textcoords": "offset points", "color": theme.ink, "fontsize": 9}


def _positions(axes: Any, report: Report, colours: dict[str, str], theme: Theme) -> None:
    for run in _drafting(report):
        shares = run.acceptance_by_position
        label = _label(run.pipeline)
        axes.plot(range(1, len(shares) + 1), shares, "o-", markersize=4, color=colours[run.pipeline], label=label)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("position in the draft", color=theme.ink)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(facecolor=theme.paper, edgecolor="none", labelcolor=theme.ink, fontsize=9)
    dress(axes, "Drafted tokens accepted, by position", theme)


def dress(axes: Any, title: str, theme: Theme) -> None:
    """Title and colours."""
    axes.set_facecolor(theme.paper)
    axes.set_title(title, color=theme.ink, fontsize=11, loc="left")
    axes.tick_params(colors=theme.ink, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.ink)


def _label(name: str) -> str:
    """A name, wrapped; matplotlib would read its dollar signs as formulas."""
    return fill(name, 16).replace("$", r"\$")
