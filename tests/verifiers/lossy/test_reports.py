"""A pipeline with a lossy verifier is refused until its file allows it; then every command says that it is lossy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from draftmux.cli.main import main
from draftmux.plugins import registry
from draftmux.testing.targets import MODEL_VOCAB, tiny_model

Command = Callable[..., Result]

NAMES = ("typical", "fly", "aasd")
PIPELINE = """\
models: {{target: {{source: ./tiny, dtype: float64}}}}
drafters: {{copy: {{use: context-copy, min_match: 1}}}}
verifier: {{use: {name}}}
generation: {{max_new_tokens: 12}}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model whose token i is the word wi."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({f"w{i}": i for i in range(1, MODEL_VOCAB)} | {"abcdef": 0}, unk_token="w1"))
    words.pre_tokenizer = WhitespaceSplit()
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model("llama", 96).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


@pytest.fixture(params=NAMES)
def command(request: pytest.FixtureRequest, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `draftmux` beside a file `lossy.yaml` of each verifier."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "tiny").symlink_to(model)
    (tmp_path / "lossy.yaml").write_text(PIPELINE.format(name=request.param))

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner(catch_exceptions=False).invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result

    return run


ALLOWED = ("--set", "lossless=false")


@pytest.mark.parametrize("arguments", [("check",), ("run", "--prompt", "w2"), ("demo", "--prompt", "w2", "--pipeline")])
def test_it_is_refused_with_its_line(command: Command, arguments: tuple[str, ...]) -> None:
    told = command(*arguments, "lossy.yaml", code=1).output
    assert "lossy.yaml:3: verifier " in told
    assert "is lossy: its text may differ from the target's; write `lossless: false` at the top level" in told


def test_check_says_so(command: Command) -> None:
    assert "no: the text may differ from the target's" in command("check", "lossy.yaml", *ALLOWED).stdout
    rows = json.loads(command("check", "lossy.yaml", "--json", *ALLOWED).stdout)["resolved"]
    assert any(row[0] == "lossless" and row[2].startswith("no") for row in rows), rows


def test_run_says_so(command: Command) -> None:
    told = command("run", "lossy.yaml", "--prompt", "w2 w3 w2", *ALLOWED)
    assert "; LOSSY: the text is not the target's own]" in told.stderr
    answer = json.loads(command("run", "lossy.yaml", "--prompt", "w2 w3 w2", "--json", *ALLOWED).stdout)
    assert answer["lossless"] is False and not answer["metrics"]["faults"]


def test_demo_says_so(command: Command) -> None:
    told = command("demo", "--pipeline", "lossy.yaml", "--prompt", "w2 w3 w2", "--max-new-tokens", "12", *ALLOWED)
    assert "This pipeline is lossy: its text need not be the target's own." in told.stdout


def test_bench_says_so(command: Command, tmp_path: Path) -> None:
    (tmp_path / "lossy.yaml").write_text("lossless: false\n" + (tmp_path / "lossy.yaml").read_text())
    (tmp_path / "p.jsonl").write_text('{"prompt": "w2 w3 w2"}\n{"prompt": "w4 w4 w4"}\n')
    told = command(
        "bench", "lossy.yaml", "--prompts", "p.jsonl", "--warmup", "0", "--json", "o.json", "--html", "o.html"
    )
    assert "lossy is lossy: its verifier accepts tokens that the target would not have chosen." in " ".join(
        told.output.split()
    )
    runs = {run["pipeline"]: run for run in json.loads((tmp_path / "o.json").read_text("utf-8"))["runs"]}
    assert (runs["plain"]["lossless"], runs["lossy"]["lossless"]) == (True, False)
    assert 'lossy <span class="tag warn">lossy</span>' in (tmp_path / "o.html").read_text("utf-8")


def test_a_misspelt_option_is_named_with_its_line(command: Command, tmp_path: Path) -> None:
    text = (tmp_path / "lossy.yaml").read_text()
    (tmp_path / "wrong.yaml").write_text("lossless: false\n" + text.replace("verifier: {", "verifier: {epsilonn: 1, "))
    told = command("check", "wrong.yaml", code=1).output
    assert "wrong.yaml:4: " in told and "epsilonn" in told


def test_they_are_listed_as_lossy() -> None:
    listed = {entry.name: entry.help for entry in registry() if entry.kind == "verifier"}
    assert all(listed[name].endswith("; lossy") for name in NAMES)
