"""Rules that every file of the repository keeps."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "drafters", "routers", "verifiers", "plugins")
MAX_FUNCTION = 50
MAX_FILE = 300

# Written in pieces, since this file is checked too.
FOLDERS = "|".join(("work", "root", r"home/\w+", r"Users/\w+"))
MACHINE = re.compile(rf"(?<![\w./:~-])/(?:{FOLDERS})/")
INDEX = re.compile("|".join(host + r"\.org" for host in ("py" + "pi", "python" + "hosted")))


@cache
def files() -> tuple[Path, ...]:
    """What is in the repository, or would be if it were added now."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = (ROOT / name for name in listed.split("\0") if name)
    return tuple(sorted({path for path in found if path.is_file() and not path.is_symlink()}))


def code(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Syntax trees of the Python files, by name; without folders, of all of them."""
    for path in files():
        name = path.relative_to(ROOT)
        if path.suffix == ".py" and (not folders or name.parts[0] in folders):
            yield name.as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def lines(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern occurs."""
    found = []
    for path in files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}")
    return found


def test_there_is_something_to_check() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"pyproject.toml", "core/types.py", "tests/test_repository.py"} <= names
    assert MACHINE.search("see " + "/root" + "/x")
    assert not MACHINE.search("tree/root/x")
    assert INDEX.search("https://" + "pypi" + ".org/simple")


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    assert lines(MACHINE) == []


def test_no_file_names_the_host_of_a_package_index() -> None:
    assert lines(INDEX) == []


def test_functions_are_short() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, module in code(*PACKAGES)
        for node in ast.walk(module)
        if isinstance(node, functions) and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION
    ]
    assert long == []


def test_files_are_short() -> None:
    sizes = {
        path.relative_to(ROOT): len(path.read_text().splitlines())
        for path in files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES
    }
    assert {str(name): size for name, size in sizes.items() if size > MAX_FILE} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [name for name, module in code(*PACKAGES) if "/tests/" not in name and not ast.get_docstring(module)]
    assert silent == []


def imports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Absolute names that a module imports, with their lines."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def test_folders_are_never_imported_by_their_own_names() -> None:
    """`core` is imported as `draftmux`, `drafters` as `draftmux.drafters`, and so on; nothing relatively."""
    names = {*PACKAGES, "tests", ""}
    wrong = [
        f"{name}:{line} {imported}"
        for name, module in code()
        for line, imported in imports(module)
        if imported.partition(".")[0] in names
    ]
    assert wrong == []


def test_every_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            [specifier] = pin.specifier
            assert specifier.operator == "==", line
            pins[canonicalize_name(pin.name)] = specifier.version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    for wanted in map(Requirement, [*project["dependencies"], *extras]):
        if wanted.name == "pip":  # it would have to replace itself while it installs
            continue
        version = pins.get(canonicalize_name(wanted.name))
        assert version is not None, f"{wanted.name} is not in constraints.txt"
        assert wanted.specifier.contains(version), f"{wanted} does not allow {version} of constraints.txt"
