"""Every block of the documentation does what it says: it runs, parses, or is the file that it claims to be."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from attrs import evolve
from click.testing import CliRunner

from draftmux.cli.main import main
from draftmux.config.load import parse_pipeline
from draftmux.plugins import discover, registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [  # of packages that are installed here
    page for page in sorted((ROOT / "plugins").glob("*/README.md")) if find_spec(page.parent.name.replace("-", "_"))
]
LANGUAGES = {"python", "yaml", "toml", "json", "sh", "console", "text", "markdown"}

Blocks = Callable[[Path], list[Any]]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_runs(page: Path, blocks: Blocks, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks(page)
    for block in found:
        assert block.language in LANGUAGES, f"{named(page)}:{block.line}: '{block.language}' is not checked by anything"
        if block.file is not None:
            save(workplace / block.file, block.text, monkeypatch)
    for block in found:
        if block.file is not None and block.file.endswith("pyproject.toml"):
            install(workplace / block.file, monkeypatch)
    namespace = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", namespace)
    for block in found:
        check(block, page, namespace)


def save(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a reader would; what is installed under the same name must not be taken for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if path.suffix == ".py":
        package = path.parent.name if path.name == "__init__.py" else path.stem
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)


def install(pyproject: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish the plugins of a package, as pip would have it done."""
    monkeypatch.syspath_prepend(pyproject.parent)
    project = tomllib.loads(pyproject.read_text())["project"]
    points = [EntryPoint(name, value, "draftmux") for name, value in project["entry-points"]["draftmux"].items()]
    published = discover(points)
    assert published.broken == [] and list(published) != []
    for entry in published:
        own = evolve(entry, package=project["name"], version=project["version"])
        monkeypatch.setitem(registry().entries, (entry.kind, entry.name), [own])


def check(block: Any, page: Path, namespace: ModuleType) -> None:
    where = f"{named(page)}:{block.line}"
    match block.language:
        case "python":
            padded = "\n" * (block.line - 1) + block.text  # so that tracebacks name the page's own lines
            exec(compile(padded, str(page), "exec", dont_inherit=True), vars(namespace))
        case "yaml" if "snippet" not in block.words:
            parse_pipeline(block.text, where)
        case "toml":
            tomllib.loads(block.text)
        case "json":
            for line in block.text.splitlines():
                json.loads(line)
        case "sh":
            for arguments in commands(block.text):
                parse_command(arguments, where)
        case "console":
            for line, output in sessions(block.text):
                run_command(line, output, where)


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `draftmux` command in a shell block."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("();<>|&"):
                if command[:1] == ["draftmux"]:
                    yield command[1:]
                command = []
            else:
                command.append(word)


def parse_command(arguments: list[str], where: str) -> None:
    command = main.get_command(click.Context(main), arguments[0])
    assert command is not None, f"{where}: there is no command '{arguments[0]}'"
    try:
        command.make_context(arguments[0], arguments[1:])
    except click.ClickException as error:
        pytest.fail(f"{where}: draftmux {' '.join(arguments)}: {error.format_message()}")


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Each command after `$ `, and the output that is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield line, output


def run_command(line: str, output: str, where: str) -> None:
    """Run in this process; in the output that a page shows, `...` stands for anything."""
    [arguments] = commands(line)
    result = CliRunner(catch_exceptions=False).invoke(main, arguments)
    assert output or result.exit_code == 0, f"{where}: {result.output}"
    if output:
        shown = "\n".join(row.rstrip() for row in result.output.splitlines()) + "\n"
        same = doctest.OutputChecker().check_output(output, shown, doctest.ELLIPSIS)
        assert same, f"{where}: draftmux {' '.join(arguments)} gives\n{shown}\nand not\n{output}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_flags_in_the_text_exist(page: Path) -> None:
    for written in re.findall(r"`draftmux ([a-z-]+)([^`\n]*)`", page.read_text(encoding="utf-8")):
        if written[0] == "serve":
            assert named(page) == "README.md" and "planned" in page.read_text()
            continue
        command = main.get_command(click.Context(main), written[0])
        assert command is not None, f"there is no command '{written[0]}'"
        part = re.match(r" ([a-z0-9-]+)", written[1])
        if isinstance(command, click.Group) and part is not None:
            command = command.get_command(click.Context(command), part[1])
            assert command is not None, f"there is no command '{written[0]} {part[1]}'"
        known = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", written[1])) <= known, f"draftmux {' '.join(written)}"


def test_the_tutorial_builds_the_plugin_of_the_repository(blocks: Blocks) -> None:
    plugin = ROOT / "plugins" / "draftmux-echo"
    built = {
        block.file.removeprefix("draftmux-echo/"): block.text
        for block in blocks(ROOT / "docs" / "tutorial.md")
        if (block.file or "").startswith("draftmux-echo/")
    }
    leftovers = {"__pycache__", "build", "draftmux_echo.egg-info"}
    files = [path for path in plugin.rglob("*") if path.is_file() and not leftovers & set(path.parts)]
    assert built == {path.relative_to(plugin).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_the_readme_gives_the_two_commands_that_set_up(blocks: Blocks) -> None:
    lines = [line for block in blocks(ROOT / "README.md") if block.language == "sh" for line in block.text.splitlines()]
    install = "pip install -c constraints.txt -e"
    assert f"{install} . -e plugins/draftmux-smollm2 && draftmux demo" in lines
    assert f"{install} '.[test]' -e plugins/draftmux-smollm2 && pytest" in lines
