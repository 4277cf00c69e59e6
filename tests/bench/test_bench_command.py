from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from draftmux.bench.contenders import PipelineContender
from draftmux.cli.main import main
from draftmux.testing.targets import tiny_model

Bench = Callable[..., Result]
PLD = """
models: {target: {source: ./tiny, dtype: float64}}
drafters: {pld: {use: pld, max_n: 2, length: 6}}
generation: {max_new_tokens: 12}
"""
COPY = """
models: {target: {source: ./tiny, dtype: float64}}
drafters: {copy: {use: context-copy, min_match: 1}}
generation: {max_new_tokens: 12}
"""
ROWS = ({"turns": ["w1 w2 w3 w1 w2", "w5"], "category": "a"}, {"prompt": "w9 w8 w9"}, {"prompt": "w4"})


@pytest.fixture(scope="module")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model("llama", 96).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def bench(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run the command in a folder with pipelines, prompts and a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").symlink_to(model)
    (tmp_path / "pld.yaml").write_text(PLD)
    (tmp_path / "copy.yaml").write_text(COPY)
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return lambda *arguments: CliRunner().invoke(main, ["bench", *arguments])


def test_everything_at_once(bench: Bench, tmp_path: Path) -> None:
    result = bench(
        *("pld.yaml", "copy.yaml", "--prompts", "prompts.jsonl", "--baseline", "transformers"),
        *("--json", "o.json", "--plot", "o.png", "--html", "o.html", "--repeat", "2", "--warmup", "1", "--seed", "5"),
    )
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    names = ["plain", "pld", "copy", "transformers", "transformers-prompt-lookup"]
    assert [run["pipeline"] for run in data["runs"]] == names
    for run in data["runs"]:
        assert (run["prompts"], run["tokens"], run["identical_prompts"]) == (4, 96, 4)
        assert run["identical"] is True
        assert run["identical_to_transformers"] is True
        assert run["lossless"] is True
        assert run["tokens_per_second"] > 0
        assert run["speedup_interval"][0] <= run["speedup"] <= run["speedup_interval"][1]
    assert data["command"].startswith(
        "draftmux bench pld.yaml copy.yaml --prompts prompts.jsonl --baseline transformers"
    )
    assert data["settings"]["seed"] == 5
    assert data["settings"]["max_new_tokens"] == 12
    assert data["machine"]["dtype"] == "float64"
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")
    assert "prompts.jsonl" in (tmp_path / "o.html").read_text("utf-8")
    assert "transformers" in result.stdout
    assert data["command"] in result.stdout.replace("\n", " ")


def test_limit_length_batch_and_overrides(bench: Bench, tmp_path: Path) -> None:
    result = bench(
        *("pld.yaml", "--prompts", "prompts.jsonl", "--limit", "2", "--max-new-tokens", "5", "--batch", "2"),
        *("--set", "models.target.dtype=float32", "--json", "o.json", "--warmup", "0"),
    )
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    plain = data["runs"][0]
    assert data["machine"]["dtype"] == "float32"
    assert (plain["prompts"], plain["tokens"]) == (3, 15)
    assert [unit["prompt"] for unit in plain["units"]] == ["1 turn 1, 2", "1 turn 2"]
    assert len(data["runs"]) == 2


@pytest.mark.parametrize("verifier", ["rejection", "block", "traversal"])
def test_a_sampled_text_that_need_not_be_equal_is_not_judged(verifier: str, bench: Bench, tmp_path: Path) -> None:
    result = bench(
        *("pld.yaml", "--prompts", "prompts.jsonl", "--json", "o.json", "--warmup", "0"),
        *("--set", f"verifier.use={verifier}", "--set", "generation.temperature=1"),
    )
    assert result.exit_code == 0, result.output
    assert "its verifier keeps the target's law, and not the text of a seed" in " ".join(result.stdout.split())
    law = json.loads((tmp_path / "o.json").read_text("utf-8"))["runs"][1]
    assert law["lossless"] and {difference["verdict"] for difference in law["differences"]} == {"law"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pld.yaml"], "give one of --suite NAME and --prompts FILE.jsonl"),
        (["pld.yaml", "--suite", "humaneval", "--prompts", "prompts.jsonl"], "give one of --suite"),
        (["--suite", "humaneval"], "Missing argument 'PIPELINE...'"),
        (["pld.yaml", "--prompts", "none.jsonl"], "cannot read the prompts in 'none.jsonl'"),
        (["pld.yaml", "--prompts", "prompts.jsonl", "--json", "no/o.json"], "there is no folder"),
        (
            ["pld.yaml", "--prompts", "prompts.jsonl", "--batch", "2", "--baseline", "transformers"],
            "--baseline transformers runs prompt by prompt",
        ),
        (["pdl.yaml", "--prompts", "prompts.jsonl"], "pdl.yaml: no such file"),
        (["pld.yaml", "--prompts", "prompts.jsonl", "--limit", "0"], "--limit"),
    ],
)
def test_mistakes_on_the_command_line(bench: Bench, arguments: list[str], message: str) -> None:
    result = bench(*arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_pipelines_that_cannot_be_compared_are_refused_before_loading(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(COPY.replace("float64", "float32").replace("./tiny", "./not-there"))
    result = bench("pld.yaml", "other.yaml", "--prompts", "prompts.jsonl")
    assert result.exit_code == 1
    assert "other.yaml: models.target.source is './not-there', but './tiny' in pld.yaml" in result.output
    assert "other.yaml: models.target.dtype is 'float32', but 'float64' in pld.yaml" in result.output


def test_an_interrupt_reports_what_there_is(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 6, KeyboardInterrupt())
    result = bench("pld.yaml", "--prompts", "prompts.jsonl", "--warmup", "0", "--json", "o.json", "--html", "o.html")
    assert result.exit_code == 130
    assert "4 turns" not in result.output
    assert "partial: interrupted" in result.stdout
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert data["partial"] is True
    assert [run["prompts"] for run in data["runs"]] == [2, 2]
    assert "Partial." in (tmp_path / "o.html").read_text("utf-8")


def test_an_interrupt_before_anything_was_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 2, KeyboardInterrupt())
    result = bench("pld.yaml", "--prompts", "prompts.jsonl", "--warmup", "0")
    assert result.exit_code == 1
    assert "Aborted!" in result.output


def test_a_failure_reports_what_there_is_and_then_the_failure(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftmux.errors import PluginError

    stop_at(monkeypatch, 4, PluginError("drafter 'pld': planted"))
    result = bench("pld.yaml", "--prompts", "prompts.jsonl", "--warmup", "0", "--json", "o.json")
    assert result.exit_code == 1
    assert "Error: drafter 'pld': planted" in result.output
    data = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert data["stopped"] == "drafter 'pld': planted"
    assert data["runs"][0]["prompts"] == 1


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int, error: BaseException) -> None:
    """Let the pipelines' `count`-th request fail."""
    calls = iter(range(1, 1000))
    honest = PipelineContender.generate

    def generate(self: PipelineContender, *arguments: Any) -> Any:
        if next(calls) == count:
            raise error
        return honest(self, *arguments)

    monkeypatch.setattr(PipelineContender, "generate", generate)


def test_help_and_import_need_no_torch() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from draftmux.cli.main import main;"
        "assert CliRunner().invoke(main, ['bench', '--help']).exit_code == 0;"
        "assert CliRunner().invoke(main, ['bench', 'x.yaml', '--prompts', 'none']).exit_code == 1;"
        "assert not {'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
