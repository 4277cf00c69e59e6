from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from draftmux.cli.main import main


@pytest.fixture
def pipeline(tmp_path: Any) -> str:
    path = tmp_path / "p.yaml"
    path.write_text("backend: {use: scripted, table: {0: [0, 1], 1: [1, 0]}, eos_ids: [1]}\n")
    return str(path)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["run", *arguments])


def test_two_constraints_exclude_each_other(pipeline: str) -> None:
    result = run(pipeline, "--prompt", "a", "--json-schema", "s.json", "--regex", "a")
    assert result.exit_code == 2 and "exclude each other" in result.output


@pytest.mark.smollm2
def test_the_embedded_model_writes_what_a_schema_describes(tmp_path: Any) -> None:
    schema = tmp_path / "s.json"
    shape = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    schema.write_text(json.dumps(shape))
    arguments = ("pld", "--prompt", "A number as JSON, please.", "--json-schema", str(schema), "--json")
    result = run(*arguments, "--set", "generation.max_new_tokens=40")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["finish_reason"] == "stop" and json.loads(found["text"])["n"] in (1, 2)


@pytest.mark.smollm2
def test_the_embedded_model_writes_what_a_pattern_matches() -> None:
    arguments = ("pld", "--prompt", "Yes or no?", "--regex", "(Yes|No)[.]")
    result = run(*arguments)
    assert result.exit_code == 0 and result.stdout.strip() in ("Yes.", "No."), result.output


@pytest.mark.smollm2
def test_a_faulty_schema_is_named(tmp_path: Any) -> None:
    result = run("pld", "--prompt", "a", "--json-schema", str(tmp_path / "none.json"))
    assert result.exit_code == 1 and "none.json" in result.output
