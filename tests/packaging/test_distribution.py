"""What is built and installed is what stands in the folders: no module forgotten, none too many, all importable."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import draftmux

Call = Callable[..., str]

FOLDERS = {"core": "draftmux", "drafters": "draftmux/drafters", "routers": "draftmux/routers"}
FOLDERS["verifiers"] = "draftmux/verifiers"
# Imported by other libraries or run as a program, never imported by draftmux itself.
INDIRECT = {"accelerate", "gguf", "pip"}


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file that a wheel must hold, by its name there."""
    return {
        f"{inside}/{path.relative_to(folder / outside).as_posix()}": path.read_bytes()
        for outside, inside in FOLDERS.items()
        for path in (folder / outside).rglob("*")
        if path.is_file()
    }


def files_in(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")]
        return {name: archive.read(name) for name in names}


def metadata(wheel: Path, file: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(f".dist-info/{file}")]
        return archive.read(name).decode()


@pytest.fixture(scope="session")
def project(source: Path) -> dict[str, Any]:
    return tomllib.loads((source / "pyproject.toml").read_text())["project"]


def test_wheel_holds_every_file_of_the_tree_and_no_other(source: Path, wheel: Path) -> None:
    wanted, built = files_of(source), files_in(wheel)
    assert sorted(set(wanted) - set(built)) == [], (
        "add the package, or the pattern under package-data, to pyproject.toml"
    )
    assert sorted(set(built) - set(wanted)) == []
    assert built == wanted


def test_tree_has_no_module_outside_a_package(source: Path) -> None:
    modules = [path for folder in FOLDERS for path in (source / folder).rglob("*.py")]
    assert len(modules) > 50
    assert [str(path) for path in modules if not (path.parent / "__init__.py").exists()] == []


def test_wheel_is_typed_and_runs_anywhere(wheel: Path) -> None:
    assert "draftmux/py.typed" in files_in(wheel)
    assert wheel.name == f"draftmux-{draftmux.__version__}-py3-none-any.whl"


def test_metadata(wheel: Path, source: Path, project: dict[str, Any]) -> None:
    told = Parser().parsestr(metadata(wheel, "METADATA"))
    assert (told["Name"], told["Version"]) == ("draftmux", draftmux.__version__)
    assert told["Summary"] == project["description"]
    assert told["License-Expression"] == "Apache-2.0"
    assert metadata(wheel, "licenses/LICENSE") == (source / "LICENSE").read_text()
    body = told.get_payload()
    assert isinstance(body, str)
    assert body.strip() == (source / "README.md").read_text().strip()


def test_entry_points(wheel: Path) -> None:
    sections = re.findall(r"\[(\w+)\]\n((?:[^\[\n].*\n?)*)", metadata(wheel, "entry_points.txt"))
    points = {group: dict(line.split(" = ") for line in lines.splitlines()) for group, lines in sections}
    kinds = ("backends", "constraints", "drafters", "routers", "tasks", "verifiers")
    assert points == {
        "console_scripts": {"draftmux": "draftmux.cli.main:main"},
        "draftmux": {f"builtin-{kind}": f"draftmux.{kind}" for kind in kinds},
        "pytest11": {"draftmux": "draftmux.testing.pytest_plugin"},
    }


def test_sdist_builds_the_same_wheel(sdist: Path, source: Path, wheel: Path, tmp_path: Path, call: Call) -> None:
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        assert (sdist / name).read_bytes() == (source / name).read_bytes()
    call(
        "-c", "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])", tmp_path, cwd=sdist
    )
    [rebuilt] = tmp_path.glob("*.whl")
    assert rebuilt.name == wheel.name
    assert files_in(rebuilt) == files_in(wheel)
    assert metadata(rebuilt, "METADATA") == metadata(wheel, "METADATA")
    assert metadata(rebuilt, "entry_points.txt") == metadata(wheel, "entry_points.txt")


IMPORT_ALL = """
import sys
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

target = sys.argv[1]
sys.path.insert(0, target)
for name in sys.argv[2:]:
    file = import_module(name).__file__
    assert file.startswith(target), f"{name} came from {file}"
for point in next(iter(distribution("draftmux").discover(name="draftmux", path=[target]))).entry_points:
    assert point.load() is not None
print(len(sys.argv) - 2)
"""


@pytest.mark.slow
def test_every_module_imports_from_an_installed_wheel(wheel: Path, tmp_path: Path, call: Call) -> None:
    target = tmp_path / "site"
    call("-m", "pip", "install", "--no-deps", "--quiet", "--target", target, wheel, cwd=tmp_path)
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files_in(wheel)
        if name.endswith(".py")
    ]
    assert call("-c", IMPORT_ALL, target, *modules, cwd=tmp_path).strip() == str(len(modules))


def imported(source: Path, *, testing: bool) -> set[str]:
    """Top-level names of the foreign modules that `draftmux.testing`, or all the rest, imports anywhere in its code."""
    found = set()
    for folder in FOLDERS:
        for path in (source / folder).rglob("*.py"):
            if path.is_relative_to(source / "core" / "testing") is testing:
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.Import):
                        found |= {alias.name.partition(".")[0] for alias in node.names}
                    elif isinstance(node, ast.ImportFrom) and node.module:
                        found.add(node.module.partition(".")[0])
    return found - {"draftmux"} - set(sys.stdlib_module_names)


def distributions(modules: set[str]) -> dict[str, set[str]]:
    """Which distributions bring each module."""
    owners = packages_distributions()
    return {name: {canonicalize_name(owner) for owner in owners.get(name, [name])} for name in modules}


def declared(lines: Any) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def test_dependencies_are_those_that_are_imported(source: Path, project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    optional = [line for name, lines in extras.items() if name not in ("test", "dev") for line in lines]
    needed = distributions(imported(source, testing=False))
    known = declared([*project["dependencies"], *optional])
    assert len(needed) > 5
    assert {name for name, owned in needed.items() if not owned & known} == set(), "imported, but not a dependency"
    used = set[str]().union(*needed.values()) | INDIRECT
    assert known - used == set(), "a dependency, but imported nowhere"


def test_testing_helpers_need_no_more_than_the_test_extra(source: Path, project: dict[str, Any]) -> None:
    known = declared([*project["dependencies"], *project["optional-dependencies"]["test"]])
    needed = distributions(imported(source, testing=True))
    assert {name for name, owned in needed.items() if not owned & known} == set()
