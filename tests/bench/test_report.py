from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from rich.console import Console

from draftmux.bench.html import render
from draftmux.bench.plot import draw
from draftmux.bench.report import write_json
from draftmux.bench.table import print_report
from draftmux.engine.metrics import STAGES, Metrics

if TYPE_CHECKING:
    from draftmux.bench.summary import Report

Make = Callable[..., Any]
RUN_KEYS = {
    "pipeline",
    "suite",
    "prompts",
    "tokens",
    "tokens_per_second",
    "speedup",
    "speedup_interval",
    "mean_acceptance_length",
    "identical",
    "identical_prompts",
    "lossless",
}


def printed(report: Report, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_report(report, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_json_layout(real: Report, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_json(real, path)
    data = json.loads(path.read_text("utf-8"))
    assert data["command"] == "draftmux bench oracle.yaml"
    assert data["partial"] is False
    assert {"line", "cpu", "threads", "dtype", "torch", "transformers"} <= set(data["machine"])
    assert [run["pipeline"] for run in data["runs"]] == ["plain", "oracle", "idle"]
    assert all(set(run) >= RUN_KEYS for run in data["runs"])
    plain, oracle, idle = data["runs"]
    assert (plain["speedup"], plain["speedup_interval"]) == (1, [1, 1])
    assert [run["tokens"] for run in data["runs"]] == [32, 32, 32]
    assert all(run["suite"] == "suite" and run["prompts"] == 2 and run["identical"] is True for run in data["runs"])
    # 16 tokens by 3 + 1 are 4 passes; the other prompt takes 16.
    assert oracle["mean_acceptance_length"] == pytest.approx(1 + 12 / 20)
    assert oracle["acceptance_by_position"] == [1, 1, 1]
    assert (oracle["drafted"], oracle["accepted"], oracle["acceptance_rate"]) == (12, 12, 1)
    assert oracle["drafters"]["d"]["share_of_steps"] == pytest.approx(4 / 20)
    assert oracle["drafters"]["d"]["share_of_tokens"] == pytest.approx(12 / 32)
    assert oracle["rows_per_pass"] == pytest.approx(32 / 20)
    assert idle["acceptance_rate"] is None
    assert set(oracle["categories"]) == {"x", "y"}
    assert [unit["prompt"] for unit in oracle["units"]] == ["a", "b"]


def test_stage_shares_add_up(real: Report) -> None:
    for run in real.runs:
        assert list(run.stages) == ["prefill", *STAGES[:4], "judge", *STAGES[4:], "other"]
        assert sum(run.stages.values()) == pytest.approx(1)
        assert run.outside_model == pytest.approx(1 - run.stages["prefill"] - run.stages["score"])


@pytest.mark.parametrize(("told", "shown"), [(0.25, 0.25), (9.0, 1.0), (-1.0, 0.0)])
def test_what_a_verifier_says_that_it_judged_is_part_of_accepting(real: Report, told: float, shown: float) -> None:
    """At most all of it, whatever it says."""
    run = real.runs[1]
    assert run.metrics is not None
    spent = run.metrics.seconds["accept"]
    judged = evolve(run, metrics=run.metrics + Metrics(verifier=Counter(seconds=told * spent)))  # type: ignore[arg-type]
    assert judged.stages["judge"] == pytest.approx(shown * run.stages["accept"])
    assert judged.stages["judge"] + judged.stages["accept"] == pytest.approx(run.stages["accept"])


def test_figures_of_a_known_case(by_hand: Make) -> None:
    ones = [1] * 10
    report = by_hand(
        {"plain": [(ones, 1.0), (ones, 1.0)], "x": [(ones, 0.5), ([1] * 9 + [2], 0.25)]},
    )
    run = report.runs[1]
    assert run.totals.rate == pytest.approx(20 / 0.75)
    assert run.speedup == pytest.approx(2 / 0.75)
    assert run.speedup_interval == pytest.approx((2, 4))
    assert dict(run.categories) == pytest.approx({"a": 2, "b": 4})
    assert [unit.speedup for unit in run.units] == pytest.approx([2, 4])
    assert run.as_dict()["request_tokens_per_second"] == pytest.approx({"mean": 30, "p50": 30, "p95": 39})
    assert run.as_dict()["identical"] is False
    assert run.as_dict()["identical_prompts"] == 1
    assert run.mean_acceptance_length is None
    [difference] = run.as_dict()["differences"]
    assert (difference["prompt"], difference["index"], difference["margin"]) == ("p1", 9, 3.0)
    assert difference["verdict"] == "breach"
    assert any("x must give the text of plain and does not for 1 of 2" in note for note in report.notes)


def test_agreement_with_transformers_is_reported_when_it_ran(by_hand: Make) -> None:
    same, other = ([1, 1], 1.0), ([1, 5], 1.0)
    answers = {"plain": [same, same], "x": [same, other], "transformers": [other, other]}
    report = by_hand(answers)
    x = report.runs[1].as_dict()
    assert (x["identical_prompts"], x["identical_to_transformers"], x["identical_prompts_to_transformers"]) == (
        1,
        False,
        1,
    )
    assert [d["prompt"] for d in x["differences_from_transformers"]] == ["p0"]
    assert report.runs[2].as_dict()["identical_to_transformers"] is True
    assert "identical to transformers" in render(report, None)
    assert "identical_to_transformers" not in by_hand({"plain": [same]}).runs[0].as_dict()


def test_lossy_runs_are_marked_everywhere(by_hand: Make) -> None:
    answers = {"plain": [([1, 1], 1.0)], "x": [([1, 5], 0.5)]}
    report = by_hand(answers, lossy=["x"])
    assert [run["lossless"] for run in report.as_dict()["runs"]] == [True, False]
    assert report.as_dict()["runs"][1]["differences"][0]["verdict"] == "reported"
    assert re.search(r"^ ?x lossy ", printed(report), re.MULTILINE)
    assert "x is lossy" in printed(report)
    assert 'x <span class="tag warn">lossy</span>' in render(report, None)


def test_a_verifier_that_keeps_only_the_law_is_not_judged_by_a_seeds_text(by_hand: Make) -> None:
    same, other = ([1, 1], 1.0), ([1, 5], 0.5)
    answers = {"plain": [same, same], "law": [other, other], "path": [same, other]}
    report = by_hand(answers, temperature=1, by_law=["law"])
    law, path = report.as_dict()["runs"][1:]
    assert [difference["verdict"] for difference in law["differences"]] == ["law", "law"]
    assert [difference["verdict"] for difference in path["differences"]] == ["reported"]
    [told] = [note for note in report.notes if note.startswith("law ")]
    assert told.startswith("law leaves the text of plain for 2 of 2 prompts, which is expected and not judged: ")
    assert any(note.startswith("path leaves the text of plain for 1 of 2 prompts (float") for note in report.notes)
    text, page = printed(report), render(report, None)
    assert re.search(r"^ ?law .* in law ", text, re.MULTILINE) and "0/2" not in text and "1/2" in text
    assert '<span class="soft">in law</span>' in page and ">0/2<" not in page
    greedy = by_hand(answers, by_law=["law"])
    assert greedy.as_dict()["runs"][1]["differences"][0]["verdict"] == "breach"
    assert "in law" not in printed(greedy) and not any("not judged" in note for note in greedy.notes)
    equal = by_hand({"plain": [same], "law": [same]}, temperature=1, by_law=["law"])
    assert "1/1" in printed(equal) and not any("not judged" in note for note in equal.notes)


def test_transformers_draws_its_own_numbers_and_is_not_judged_either(by_hand: Make) -> None:
    answers = {"plain": [([1, 1], 1.0)], "path": [([1, 1], 1.0)], "transformers": [([2, 1], 1.0)]}
    report = by_hand(answers, temperature=1, by_law=["transformers"])
    for run, own in zip(report.runs, (False, False, True), strict=True):
        assert run.agreement.in_law is own
        assert run.agreement_with_transformers is not None and run.agreement_with_transformers.in_law is not own
    assert [note for note in report.notes if "transformers" in note] == [
        "transformers samples from the same law with random numbers of its own, so its texts are others."
    ]


def test_notes_say_what_did_not_work(real: Report, by_hand: Make) -> None:
    assert "idle: drafter 'd' never had a draft." in real.notes
    assert not any("oracle" in note for note in real.notes)
    answers = {"plain": [([1], 1.0)], "transformers": [([2], 1.0)]}
    warm = by_hand(answers, temperature=0.8)
    assert any("random numbers of its own" in note for note in warm.notes)
    assert warm.as_dict()["runs"][1]["differences"][0]["verdict"] == "reported"


def test_faults_of_plugins_are_named(real: Report) -> None:
    from draftmux.bench.notes import _run_notes

    metrics = Metrics()
    metrics.faults["drafter 'd': ValueError: x"] = 3
    notes = list(_run_notes(evolve(real.runs[1], metrics=metrics), "float64"))
    assert notes == ["oracle: a plugin failed 3 times and was passed over: drafter 'd': ValueError: x"]


def test_one_prompt_has_no_interval(by_hand: Make) -> None:
    report = by_hand({"plain": [([1], 1.0)], "x": [([1], 0.5)]})
    assert report.as_dict()["runs"][1]["speedup_interval"] is None
    assert report.as_dict()["runs"][1]["speedup"] == 2
    assert report.as_dict()["runs"][1]["categories"] == {}
    assert "2.00x" in printed(report)
    assert draw(report)
    assert render(report, None)


@pytest.mark.parametrize("count", [1, 3])
def test_outputs_without_a_token(by_hand: Make, tmp_path: Path, count: int) -> None:
    report = by_hand({"plain": [((), 1.0)] * count, "x": [((), 0.0)] * count})
    for run in report.as_dict()["runs"]:
        assert (run["tokens"], run["tokens_per_second"], run["speedup"]) == (0, 0, None)
        assert (run["speedup_interval"], run["identical"]) == (None, True)
    write_json(report, tmp_path / "out.json")
    assert "0.0" in printed(report)
    assert draw(report)
    assert render(report, None)


def test_table_fits_a_terminal(real: Report) -> None:
    long = evolve(real, runs=(*real.runs, evolve(real.runs[1], pipeline="transformers-prompt-lookup")))
    text = printed(long, width=80)
    assert "…" not in text
    assert re.search(r"transformers- +\d", text)
    assert "12/12" in text
    assert "2/2" in text
    assert "draftmux bench oracle.yaml" in text
    assert "float64" in text


def test_partial_reports_say_so(by_hand: Make) -> None:
    report = by_hand(
        {"plain": [([1], 1.0)]},
        stopped="interrupted",
        skipped=["prompt q is too long"],
    )
    assert report.as_dict()["partial"] is True
    assert "partial: interrupted" in printed(report)
    assert "skipped: prompt q is too long" in printed(report)
    assert "<strong" in render(report, None)
    assert "Skipped: prompt q is too long" in render(report, None)
