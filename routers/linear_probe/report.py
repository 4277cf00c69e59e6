"""What a trained probe is worth, for people: a page, its charts as PNG files, all figures as JSON, and a model card."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.bench.html import in_both_themes, page_environment
from draftmux.bench.plot import COLOURS, LIGHT, dress, png
from draftmux.types import TAP_KINDS, Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from draftmux.bench.plot import Theme
    from draftmux.routers.linear_probe.artefact import About

FIGURES, PAGE, CARD = "report.json", "report.html", "README.md"
CHARTS = {
    "heat-map.png": "F1, AUC and AP by layer and state",
    "shifts.png": "F1 by layer, state and shift",
    "copies.png": "Accepted lengths of copies, with the probe and without",
}
COLUMNS = ("auc", "ap", "f1", "precision", "recall", "positives", "negatives")


def write(folder: Path, about: About, found: Mapping[str, Any]) -> None:
    """All of them, beside the probe."""

    shifts = [trial["shift"] for trial in found["test"]]

    def maps(theme: Theme, which: Sequence[tuple[str, int]]) -> bytes:
        drawn = [partial(_heat, found=found, measure=measure, shift=shift, theme=theme) for measure, shift in which]
        return png(drawn, theme, 7.0)

    charts: dict[str, Callable[[Theme], bytes]] = {
        "heat-map.png": lambda theme: maps(theme, [(measure, about.shift) for measure in ("f1", "auc", "ap")]),
        "shifts.png": lambda theme: maps(theme, [("f1", shift) for shift in shifts]),
        "copies.png": lambda theme: png([partial(_copies, about=about, theme=theme)], theme),
    }
    for name, draw in charts.items():
        (folder / name).write_bytes(draw(LIGHT))
    (folder / FIGURES).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    drawn = in_both_themes(lambda theme: [draw(theme) for draw in charts.values()])
    environment = page_environment()
    environment.filters["rows"] = rows
    page = environment.get_template("probe.html.j2").render(about=about, found=found, charts=drawn, columns=COLUMNS)
    (folder / PAGE).write_text(page, "utf-8")
    (folder / CARD).write_text(card(folder.name, about), "utf-8")


def rows(trial: Mapping[str, Any]) -> list[list[str]]:
    """One line a kind of test position, cells as text."""
    named = {"all": "all positions with labels", "hits": "where a copy is offered (is it followed?)"}
    kinds = [name for name in trial if name in named or name.startswith("family ")]
    found = []
    for name in kinds:
        values = trial[name] or {}
        cells = [values.get(column) for column in COLUMNS]
        found.append([named.get(name, name), *("" if v is None else _text(v) for v in cells)])
    return found


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def card(name: str, about: About) -> str:
    """The model card."""
    copies = about.metrics["copies"]
    lines = [
        f"# Probe for {about.target}",
        "",
        f"A linear probe on `{about.tap}` of the target, without a bias (SwitchSD, arXiv 2609.20186):",
        f"{_question(about)} Trained by draftmux. It copies from a score of {about.threshold:.3f} on.",
        "",
        "```yaml",
        f"router: {{use: linear-probe, probe: {name}, copy: copy, otherwise: draft}}",
        "```",
        "",
        f"- target: `{about.target}`, fingerprint `{about.target_fingerprint[:16]}`",
        f"- prompts: {about.origin['prompts']}",
        f"- command: `{about.origin['command']}`",
        "",
        "Test prompts, which nothing was chosen by:",
        "",
        "| | " + " | ".join(COLUMNS) + " |",
        "| --- |" + " --- |" * len(COLUMNS),
        *("| " + " | ".join(cells) + " |" for cells in rows(about.metrics)),
        "",
        "| copies of greedy answers | number | mean length | nothing accepted | accepted in full |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| probe {name} | {each['count']} | {each['mean']:.2f} | {each['none']:.1%} | {each['full']:.1%} |"
            for name, each in copies.items()
        ),
        "",
        *(f"![{what}]({file})" for file, what in CHARTS.items()),
    ]
    return "\n".join(lines) + "\n"


def _question(about: About) -> str:
    """What the probe answers."""
    if about.labels == "copies":
        return f"where a copy is offered, does the text follow it for {about.follows} tokens or more?"
    which = ("that its state has read", "after the one that its state has read", "two after the one its state has read")
    return f"does the token {which[about.shift]} repeat an earlier stretch of {about.label_size} tokens or more?"


def _heat(axes: Any, found: Mapping[str, Any], measure: str, shift: int, theme: Theme) -> None:
    """One figure of validation prompts, layers down, states of a layer across."""
    own = [row for row in found["validation"] if row["shift"] == shift]
    kinds = [kind for kind in TAP_KINDS if any(row["tap"].endswith(kind) for row in own)]
    layers = sorted({Tap.parse(row["tap"]).layer for row in own})
    table = np.full((len(layers), len(kinds)), np.nan)
    for row in own:
        tap = Tap.parse(row["tap"])
        table[layers.index(tap.layer), kinds.index(tap.kind)] = row[measure]
    axes.imshow(table, aspect="auto", cmap="viridis")
    for (y, x), value in np.ndenumerate(table):
        axes.text(x, y, f"{value:.3f}", ha="center", va="center", fontsize=6, color=_ink(value, table))
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_yticks(range(len(layers)), layers)
    axes.set_ylabel("layer", color=theme.ink)
    dress(axes, f"{measure.upper()} on validation prompts, shift {shift}", theme)


def _ink(value: float, table: np.ndarray[Any, Any]) -> str:
    """Readable on its cell."""
    return "black" if value > (np.nanmin(table) + np.nanmax(table)) / 2 else "white"


def _copies(axes: Any, about: About, theme: Theme) -> None:
    """Accepted lengths of copies with the probe and without it."""
    for place, (name, spread) in enumerate(about.metrics["copies"].items()):
        _bars(axes, spread["lengths"], max(spread["count"], 1), f"probe {name}", place)
    axes.set_xlabel("accepted tokens of a copy", color=theme.ink)
    axes.legend(facecolor=theme.paper, edgecolor="none", labelcolor=theme.ink, fontsize=9)
    dress(axes, "Share of copies, by accepted length", theme)


def _bars(axes: Any, lengths: Sequence[int], total: int, label: str, place: int) -> None:
    where = [length + 0.4 * place - 0.2 for length in range(len(lengths))]
    axes.bar(where, [count / total for count in lengths], width=0.4, color=COLOURS[place], label=label)
