"""The report as one HTML file that needs nothing else: styles inline, charts as data, no scripts, no links."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from attrs import frozen
from jinja2 import Environment, FunctionLoader, StrictUndefined

from draftmux.bench.plot import DARK, LIGHT, draw_each
from draftmux.bench.table import interval_text, no_difference, number, percent, times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftmux.bench.agreement import Agreement, Difference
    from draftmux.bench.plot import Theme
    from draftmux.bench.summary import Report

SHOWN = 50  # differing prompts a contender; the JSON file has all


@frozen
class Side:
    """Two outputs side by side: what they share, then how each goes on."""

    difference: Difference
    common: str
    reference: str
    other: str


@frozen
class Comparison:
    """The differences between one contender and one reference that are shown, and how many are not."""

    name: str
    reference: str
    agreement: Agreement
    sides: tuple[Side, ...]

    @property
    def hidden(self) -> int:
        """Differences that are left out."""
        return len(self.agreement.differences) - len(self.sides)


def render(report: Report, tokenizer: Any) -> str:
    """The page. `tokenizer` turns tokens into text; without one they are shown as ids."""
    environment = page_environment()
    environment.filters.update(number=number, percent=percent, times=times, interval=interval_text)
    environment.tests["no_difference"] = no_difference
    positions = max((len(run.acceptance_by_position) for run in report.runs), default=0)
    return environment.get_template("report.html.j2").render(
        report=report,
        positions=range(positions),
        charts=in_both_themes(partial(draw_each, report)),
        comparisons=list(_comparisons(report, tokenizer)),
    )


def page_environment() -> Environment:
    """Where the templates of pages are found; all of them escape what they are given."""
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: files("draftmux.bench").joinpath(name).read_text("utf-8")),
    )


def in_both_themes(draw: Callable[[Theme], Sequence[bytes]]) -> list[tuple[str, str]]:
    """Each chart as data for light and for dark pages."""
    light, dark = (map(_data_uri, draw(theme)) for theme in (LIGHT, DARK))
    return list(zip(light, dark, strict=True))


def _comparisons(report: Report, tokenizer: Any) -> Sequence[Comparison]:
    pairs = [(run.pipeline, "plain", run.agreement) for run in report.runs]
    pairs += [
        (run.pipeline, "transformers", run.agreement_with_transformers)
        for run in report.runs
        if run.agreement_with_transformers is not None
    ]
    return [
        Comparison(name, reference, agreement, tuple(_side(d, tokenizer) for d in agreement.differences[:SHOWN]))
        for name, reference, agreement in pairs
        if agreement.differences
    ]


def _side(difference: Difference, tokenizer: Any) -> Side:
    common = _text(difference.reference[: difference.index], tokenizer)
    whole = [_text(tokens, tokenizer) for tokens in (difference.reference, difference.tokens)]
    # A character may be cut in two where the texts part; then its first half belongs to both tails.
    while not all(text.startswith(common) for text in whole):
        common = common[:-1]
    return Side(difference, common, *(text[len(common) :] for text in whole))


def _text(tokens: Sequence[int], tokenizer: Any) -> str:
    return " ".join(map(str, tokens)) if tokenizer is None else str(tokenizer.decode(tokens))


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode("ascii")
