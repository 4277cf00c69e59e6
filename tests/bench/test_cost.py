from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from draftmux.backends.scripted import ScriptedTarget
from draftmux.bench.cost import COLUMNS, CostReport, cells, draw_cost, print_cost, render_cost
from draftmux.cli.main import main
from draftmux.costs import CostCurve

Bench = Callable[..., Result]
TABLE = "{0: [0, 1, 2], 1: [2, 0, 1], 2: [1, 2, 0]}"
SCRIPTED = f"backend: {{use: scripted, table: {TABLE}}}\ndrafters: {{pld: {{use: pld}}}}\n"
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


@pytest.fixture
def report() -> CostReport:
    curve = CostCurve((1, 2, 4, 8, 16, 32, 64), (0.04, 0.1, 0.038, 0.04, 0.06, 0.0636, 2.6))
    machine = {"line": "a machine", "cpu": "a <cpu>", "gpu": None}
    return CostReport("p.yaml", "org/<name>", curve, {"backend": "scripted"}, machine, "draftmux bench --cost p.yaml")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCRIPTED)
    (tmp_path / "short.yaml").write_text(SCRIPTED.replace("table:", "max_length: 20, table:"))
    return lambda *arguments: CliRunner().invoke(main, ["bench", *arguments])


def test_break_even_is_where_tokens_pay_for_the_pass(report: CostReport) -> None:
    for point in report.points[1:]:
        assert point.break_even is not None
        tokens = 1 + point.break_even * (point.rows - 1)
        assert tokens == pytest.approx(max(1.0, point.ratio))
    assert [cells(point) for point in report.points] == [
        ["1", "40.000", "1.00x", "-"],
        ["2", "100.000", "2.50x", "never"],
        ["4", "38.000", "0.95x", "0.0 %"],
        ["8", "40.000", "1.00x", "0.0 %"],
        ["16", "60.000", "1.50x", "3.3 %"],
        ["32", "63.600", "1.59x", "1.9 %"],
        ["64", "2600.000", "65.00x", "never"],
    ]
    assert report.open_nodes == 15


def test_the_page_needs_nothing_else_and_escapes_names(report: CostReport) -> None:
    page = render_cost(report)
    assert "org/&lt;name&gt;" in page
    assert "<name>" not in page
    assert "http" not in page
    assert page.count("data:image/png;base64,") == 4
    for tag in ("section", "table", "header", "picture", "dl", "ul", "div"):
        assert page.count(f"<{tag}") == page.count(f"</{tag}>") > 0
    for point in report.points:
        for cell in cells(point):
            assert f">{cell}<" in page
    for column in COLUMNS:
        assert f"<th>{' '.join(column.split())}</th>" in page


@pytest.mark.parametrize("rows", [(1,), (1, 2), (3,)])
def test_few_sizes_are_enough(rows: tuple[int, ...]) -> None:
    curve = CostCurve(rows, tuple(0.001 * size for size in rows))
    small = CostReport("p", "t", curve, {}, {"line": "m"}, "c")
    assert draw_cost(small).startswith(b"\x89PNG")
    assert render_cost(small).count("data:image/png;base64,") == 4


def test_the_command_measures_and_writes_everything(bench: Bench, tmp_path: Path) -> None:
    result = bench("--cost", "s.yaml", "--json", "o.json", "--plot", "o.png", "--html", "o.html")
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert [point["rows"] for point in data["curve"]] == [1, 2, 4, 8, 16, 32, 64, 128, 208]
    plain = data["curve"][0]
    assert (plain["ratio"], plain["break_even"]) == (1.0, None)
    for point in data["curve"]:
        assert point["ratio"] == pytest.approx(point["seconds"] / plain["seconds"])
        assert re.search(rf"^ *{point['rows']} .*{point['ratio']:.2f}x", result.stdout, re.MULTILINE)
    assert data["command"].startswith("draftmux bench --cost s.yaml")
    assert data["machine"]["dtype"] == "float64"
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")
    assert "o.html" in (tmp_path / "o.html").read_text("utf-8")


def test_its_json_is_documented(bench: Bench, tmp_path: Path) -> None:
    assert bench("--cost", "short.yaml", "--json", "o.json").exit_code == 0
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert [point["rows"] for point in data["curve"]] == [1, 2, 4, 8, 16]

    def layout(name: str) -> set[str]:
        found = re.search(rf"<!-- json: {name} -->\n((?:\|.*\n)+)", DOCS.read_text("utf-8"))
        assert found is not None
        return set(re.findall(r"^\| `([^`]+)` \|", found[1], re.MULTILINE))

    assert set(data) == layout("bench-cost")
    assert set(data["curve"][0]) == layout("bench-cost-point")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("s.yaml", "--cost", "--suite", "humaneval"), "--cost runs no prompts; leave out --suite"),
        (("s.yaml", "--cost", "--prompts", "s.yaml"), "--cost runs no prompts; leave out --prompts"),
        (("s.yaml", "--cost", "--max-new-tokens", "3"), "leave out --max-new-tokens"),
        (("s.yaml", "--cost", "--baseline", "transformers"), "leave out --baseline"),
        (("s.yaml", "s.yaml", "--cost"), "name just one"),
        (("s.yaml", "--cost", "--json", "no/o.json"), "there is no folder"),
        (("s.yaml",), "give one of --suite NAME and --prompts FILE.jsonl"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], fault: str, bench: Bench) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert fault in " ".join(result.output.split())


def test_a_file_that_cannot_be_written_is_told_after_the_table(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "o.json").symlink_to(tmp_path / "nowhere" / "o.json")
    result = bench("--cost", "short.yaml", "--json", "o.json", "--plot", "o.png")
    assert result.exit_code == 1
    assert "--json o.json could not be written" in result.stderr
    assert "1.00x" in result.stdout
    assert (tmp_path / "o.png").exists()


def test_what_is_measured_is_kept_for_backends_that_remember(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import draftmux.binding
    from draftmux.cost_cache import recall
    from draftmux.testing.targets import hash_law

    class Remembering(ScriptedTarget):
        cost_key: ClassVar[dict[str, str]] = {"model": "m"}

    monkeypatch.setenv("DRAFTMUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DRAFTMUX_COST_CACHE", "on")
    target = Remembering(hash_law(seed=1, vocab_size=4), 4)
    monkeypatch.setattr(draftmux.binding, "bind_backend", lambda spec: target)
    assert bench("--cost", "s.yaml", "--json", "o.json").exit_code == 0
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    curve = recall({"model": "m"})
    assert curve is not None
    assert list(curve.seconds) == [point["seconds"] for point in data["curve"]]


def test_the_table_prints_on_any_console(report: CostReport) -> None:
    out = StringIO()
    print_cost(report, Console(file=out, width=50))
    assert "org/<name>: a target pass by rows" in out.getvalue()
    assert report.command in out.getvalue()
