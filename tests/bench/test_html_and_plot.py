from __future__ import annotations

import io
from collections.abc import Callable
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from draftmux.bench.html import render
from draftmux.bench.plot import DARK, LIGHT, draw, draw_each

if TYPE_CHECKING:
    from draftmux.bench.summary import Report

Make = Callable[..., Any]


class Page(HTMLParser):
    """Collects what a page refers to and whether its elements are closed."""

    VOID = ("meta", "img", "source", "br", "link", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "srcset", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html_needs_nothing_else(real: Report, tokenizer: Any) -> None:
    page = render(real, tokenizer)
    found = Page(page)
    assert found.open == []
    assert found.tags.isdisjoint({"script", "link", "iframe", "object", "base", "a"})
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page
    assert len(found.references) == 4  # two charts, each for light and dark
    assert all(reference.startswith("data:image/png;base64,") for reference in found.references)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_html_escapes_names_and_shows_differing_texts_side_by_side(by_hand: Make, tokenizer: Any) -> None:
    evil = '<script>alert("x")</script>'
    answers = {"plain": [([1, 1, 4], 1.0)], evil: [([1, 1, 5, 6], 0.5)]}
    page = render(by_hand(answers), tokenizer)
    assert "<script" not in page
    assert Page(page).open == []
    assert evil in "".join(Page(page).text)
    assert '<span class="same">w1 w1 w</span><mark>4</mark>' not in page
    assert '<span class="same">w1 w1</span><mark> w4</mark>' in page
    assert '<span class="same">w1 w1</span><mark> w5 w6</mark>' in page


def test_plots_are_pictures_with_bars_in_them(real: Report) -> None:
    from matplotlib.image import imread

    light, dark = (imread(io.BytesIO(draw(real, theme))) for theme in (LIGHT, DARK))
    assert light.shape == dark.shape
    assert light.shape[1] > 1000
    assert light[0, 0, :3].mean() == 1
    assert dark[0, 0, :3].mean() < 0.2
    assert light[..., :3].std() > 0.05
    assert len(draw_each(real, LIGHT)) == 2


def test_a_plot_without_drafts_has_speedups_alone(by_hand: Make) -> None:
    report = by_hand({"plain": [([1], 1.0)], "a $b$ \\frac": [([1], 0.5)]})
    assert len(draw_each(report, LIGHT)) == 1
    assert draw(report).startswith(b"\x89PNG")
