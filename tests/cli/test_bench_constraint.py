"""`bench` with a constraint: pipelines are compared by it, and the report says which one it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

pytest.importorskip("llguidance", reason="needs the extra `structured`: pip install 'draftmux[structured]'")

Command = Callable[..., Result]
Pipeline = Callable[..., str]

ONE = "drafters: {copy: {use: pld}}\ngeneration: {max_new_tokens: 5, constraint: {use: regex, pattern: '[ab]*'}}"


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "abab"}\n')
    return str(path)


def test_the_settings_name_the_constraint(
    command: Command, pipeline: Pipeline, prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command("bench", pipeline(ONE), "--prompts", prompts, "--json", "o.json", "--html", "o.html", "--warmup", "0")
    data = json.loads(Path("o.json").read_text("utf-8"))
    assert data["settings"]["constraint"] == {"use": "regex", "pattern": "[ab]*"}
    assert (data["settings"]["temperature"], data["settings"]["max_new_tokens"], data["settings"]["stop"]) == (0, 5, [])
    assert "regex" in Path("o.html").read_text("utf-8")


def test_another_constraint_is_named_before_anything_is_loaded(
    command: Command, pipeline: Pipeline, prompts: str
) -> None:
    other = pipeline(ONE.replace("regex, pattern: '[ab]*'", "lark, grammar: 'start: /[ab]*/'"), "other.yaml")
    said = command("bench", pipeline(ONE), other, "--prompts", prompts, code=1).stderr
    assert "generation.constraint is {'use': 'lark', " in said
    assert "but {'use': 'regex', 'pattern': '[ab]*'} in " in said
