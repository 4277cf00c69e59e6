from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest
from click.testing import Result

from draftmux.cli.demo import PROMPTS
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Draft
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from draftmux.sampling import Sampler

Command = Callable[..., Result]
Pipeline = Callable[..., str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which the table's cells are not wrapped."""
    monkeypatch.setenv("COLUMNS", "160")


def rows(result: Result) -> dict[str, Sequence[str]]:
    """The table: name, and the other cells."""
    lines = [
        [cell.strip() for cell in line.strip("│┃").split("│")] for line in result.stdout.splitlines() if "│" in line
    ]
    return {name: cells for name, *cells in lines}


def test_the_pipeline_is_shown_and_compared_with_plain_decoding(command: Command, pipeline: Pipeline) -> None:
    path = pipeline(
        "drafters: {copy: {use: pld}, tree: {use: context-copy}}\nrouter: {use: cascade, order: [copy, tree]}"
    )
    answer = command("run", path, "--prompt", "abc abc", "--set", "generation.max_new_tokens=20").stdout
    result = command("demo", "--pipeline", path, "--prompt", "abc abc", "--max-new-tokens", "20")
    assert "tokens guessed by: copy  tree  the target itself\n" in result.stdout
    assert f"\nabc abc\n\n{answer}" in result.stdout
    table = rows(result)
    assert table["plain"][0] == table[path][0] == "20"
    assert table["plain"][2:4] == ["1.00x", "1.00"]
    assert table[path][2].endswith("x")
    assert 1 <= float(table[path][3]) <= 20
    assert table[path][4] == "1 of 1"
    assert "differ" not in result.stdout


def test_it_brings_its_own_prompts(command: Command, pipeline: Pipeline) -> None:
    path = pipeline()
    result = command(
        "demo", "--pipeline", path, "--max-new-tokens", "2", "--set", "generation.prompt_format=raw", code=1
    )
    assert "tokens; the target attends to 128" in result.stderr  # the tiny model has no room for them
    assert PROMPTS[0].splitlines()[0] in result.stdout


def test_text_that_looks_like_markup_is_shown_as_it_is(
    command: Command, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")  # so that the path, however long, stands on one line
    path = pipeline(name="[b]odd[i].yaml")
    result = command("demo", "--pipeline", path, "--prompt", "[red]a[/b] [link", "--max-new-tokens", "4")
    assert "\n[red]a[/b] [link\n" in result.stdout
    assert any(name.endswith("[b]odd[i].yaml") for name in rows(result))


def test_settings_can_be_overridden(command: Command, pipeline: Pipeline) -> None:
    options = ["--prompt", "abc abc", "--max-new-tokens", "9", "--set", "generation.temperature=1"]
    path = pipeline()
    result = command("demo", "--pipeline", path, *options)
    assert rows(result)[path][4] == "1 of 1"  # the same seed: the same text, sampled or not
    answers = {command("demo", "--pipeline", path, *options, "--set", f"generation.seed={n}").stdout for n in (1, 2)}
    assert len({answer.partition("plain decoding")[0] for answer in answers}) == 2


def test_a_lossy_pipeline_is_called_one(command: Command, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExactMatch, "lossless", False)
    result = command("demo", "--pipeline", pipeline("lossless: false\ndrafters: {copy: {use: pld}}"), "--prompt", "x")
    assert "This pipeline is lossy: its text need not be the target's own." in result.stdout


def test_texts_that_differ_are_explained(command: Command, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(self: ExactMatch, context: object, draft: Draft, scores: object, sampler: Sampler) -> Acceptance:
        token = sampler.pick(ROOT)
        return Acceptance((), (token + 1) % 128 if len(draft) else token)

    monkeypatch.setattr(ExactMatch, "accept", lie)
    path = pipeline()
    result = command("demo", "--pipeline", path, "--prompt", "abc abc", "--max-new-tokens", "20")
    assert rows(result)[path][4] == "0 of 1"
    assert re.search(r"Prompt 1: the texts part at token \d+; the two best logits are", result.stdout)
    assert "--set models.target.dtype=float32" in result.stdout


def test_errors_are_messages(command: Command, pipeline: Pipeline) -> None:
    result = command("demo", "--pipeline", "swichsd", code=1)
    assert result.stderr.startswith(
        "Error: swichsd: no such file, and no shipped pipeline of that name; did you mean 'switchsd'?"
    )
    result = command("demo", "--pipeline", pipeline(), "--set", "models.target.source=./nowhere", code=1)
    assert "Error: model source './nowhere': there is no such file or folder" in result.stderr
    assert "Traceback" not in result.output
    assert "--max-new-tokens" in command("demo", "--max-new-tokens", "0", code=2).stderr
