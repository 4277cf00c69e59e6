from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Command = Callable[..., Result]

GOOD = """
models: {target: {source: org/name}}
drafters:
  copy: {use: pld, max_n: 4}
  one-with-a-rather-long-name: {use: context-copy}
router: {use: cascade, order: [copy, one-with-a-rather-long-name]}
generation: {stop: ["[/INST]", "[bold]"], max_new_tokens: 99}
"""
FAULTY = """
models: {target: {source: org/name, dtype: float8}}
drafters:
  copy: {use: pdl}
  other: {use: pld, max_n: 0, mix_n: 3}
router: {use: fixed, drafter: cpoy}
generation: {temperature: -1}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def save(text: str | bytes, name: str = "pipeline.yaml") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return save


def test_a_sound_file_shows_what_it_resolves_to(command: Command, write: Callable[..., str]) -> None:
    result = command("check", write(GOOD))
    assert result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    for words in (
        ["model.target", "org/name"],
        ["drafter.copy", "pld", "(draftmux", "0.1.0)"],
        ["max_n:", "4"],
        ["drafter.one-with-a-rather-long-name", "context-copy", "(draftmux", "0.1.0)"],
        ["router", "cascade", "(draftmux", "0.1.0)"],
        ["verifier", "exact-match", "(draftmux", "0.1.0)"],
        ["backend", "static", "(draftmux", "0.1.0)"],
        ["generation", "greedy"],
        ["max_new_tokens:", "99"],
        ["stop:", '["[/INST]",', '"[bold]"]'],
        ["lossless", "yes"],
    ):
        assert words in lines


def test_json_holds_the_same(command: Command, write: Callable[..., str]) -> None:
    told = json.loads(command("check", "--json", write(GOOD)).stdout)
    assert told["ok"] is True
    rows = {(part, name): (value, package, options) for part, name, value, package, options in told["resolved"]}
    assert rows["model", "target"][0] == "org/name"
    assert rows["drafter", "copy"][:2] == ("pld", "draftmux 0.1.0")
    assert rows["drafter", "copy"][2]["max_n"] == 4
    assert rows["generation", ""][2]["stop"] == ["[/INST]", "[bold]"]
    assert rows["lossless", ""][0] == "yes"


def test_all_faults_are_listed_with_their_lines(command: Command, write: Callable[..., str]) -> None:
    path = write(FAULTY)
    result = command("check", path, code=1)
    faults = result.stdout.splitlines()
    assert [fault.removeprefix(f"{path}:").partition(":")[0] for fault in faults] == ["2", "4", "5", "5", "6", "7"]
    for line, message in ((2, "float8"), (4, "did you mean 'pld'?"), (6, "'cpoy'"), (7, "temperature")):
        assert any(fault.startswith(f"{path}:{line}: ") and message in fault for fault in faults)
    assert result.stderr == "6 faults\n"


def test_json_lists_the_same_faults(command: Command, write: Callable[..., str]) -> None:
    path = write(FAULTY)
    result = command("check", "--json", path, code=1)
    assert result.stderr == ""
    assert json.loads(result.stdout) == {"ok": False, "faults": command("check", path, code=1).stdout.splitlines()}


def test_overrides_are_checked_too(command: Command, write: Callable[..., str]) -> None:
    path = write("models: {target: {source: org/name}}\ndrafters: {copy: {use: pld, max_n: 0}}\n")
    assert command("check", path, code=1).stderr == "1 fault\n"
    command("check", path, "--set", "drafters.copy.max_n=2")
    result = command("check", path, "--set", "drafters.copy.max_n=2", "--set", "generation.seed=x", code=1)
    assert result.stdout == "--set generation.seed=x: generation.seed must be an integer, not the text 'x'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: the file holds no YAML documents; it must hold one mapping"),
        ("a: [", "not valid YAML"),
        (b"\xff\xfe", ": not UTF-8 text at byte 0; save it as UTF-8"),
        ("- a", "the top level must be a mapping"),
    ],
)
def test_what_is_no_pipeline_file_is_a_fault(
    text: str | bytes, message: str, command: Command, write: Callable[..., str]
) -> None:
    result = command("check", write(text), code=1)
    assert message in result.stdout
    assert result.stderr == "1 fault\n"


def test_a_file_that_is_not_there_is_a_fault(command: Command, tmp_path: Path) -> None:
    assert "no such file, and no shipped pipeline" in command("check", "nowhere.yaml", code=1).stdout
    assert f"{tmp_path}: cannot be read" in command("check", str(tmp_path), code=1).stdout


def test_odd_file_names_are_shown_as_they_are(command: Command, write: Callable[..., str]) -> None:
    assert "[b]odd[!].yaml:1: " in command("check", write("a: 1\n", "[b]odd[!].yaml"), code=1).stdout
    command("check", write(GOOD, "[b]odd[!].yaml"))
