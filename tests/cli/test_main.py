from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

import draftmux
from draftmux.cli.main import COMMANDS

Command = Callable[..., Result]


def test_help_lists_every_command_in_order_with_a_line_each(command: Command) -> None:
    for option in ("--help", "-h"):
        listed = command(option).stdout.partition("Commands:\n")[2].splitlines()
        names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
        assert names == list(COMMANDS)
        assert all(len(line.split()) > 2 for line in listed if line.startswith("  ") and line[2] != " ")


def test_without_arguments_help_is_shown(command: Command) -> None:
    assert "Commands:" in command(code=2).output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_every_option(name: str, command: Command) -> None:
    result = command(name, "--help")
    assert result.stdout.startswith(f"Usage: draftmux {name} ") or f" {name} " in result.stdout.splitlines()[0]
    options = result.stdout.partition("Options:\n")[2].partition("\n\n")[0].splitlines()
    assert all(len(line.split("  ")) > 1 for line in options)


def test_version(command: Command) -> None:
    assert command("--version").stdout == f"draftmux, version {draftmux.__version__}\n"


def test_an_unknown_command_is_a_usage_error(command: Command) -> None:
    result = command("chekc", code=2)
    assert "No such command 'chekc'" in result.stderr


def test_the_schema_is_one_and_takes_a_pipeline(command: Command) -> None:
    schema = json.loads(command("schema").stdout)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    text = "models: {target: {source: a/b}}\ndrafters: {copy: {use: pld, max_n: 4}}\n"
    assert list(validator.iter_errors(YAML(typ="safe").load(text))) == []
    assert list(validator.iter_errors(YAML(typ="safe").load(text.replace("max_n", "mix_n")))) != []
    assert list(validator.iter_errors(YAML(typ="safe").load(text.replace("pld", "pdl")))) != []


def test_plugins_are_listed_as_text_and_as_json(command: Command) -> None:
    told = json.loads(command("plugins", "--json").stdout)
    rows = [line.split() for line in command("plugins").stdout.splitlines()]
    for entry in told["plugins"]:
        assert [entry["kind"], entry["name"], entry["package"], entry["version"], *entry["help"].split()] in rows
    assert len(told["plugins"]) >= 10
