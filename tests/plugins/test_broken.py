"""Packages that break in every way a package can. None of them may take anything else down, and each says why."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = subprocess.CompletedProcess[str]

HOOK = "from draftmux.hookspecs import hookimpl\n\n@hookimpl\ndef register_drafters(register):\n    "

# Code of the package, and what its user must be told.
BROKEN = {
    "import-error": ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found'"),
    "syntax-error": ("def (:\n", "SyntaxError: invalid syntax"),
    "exits": ("import sys\nsys.exit('leaving')\n", "SystemExit: leaving"),
    # Panics of extensions written in Rust derive from BaseException.
    "panics": ("class Panic(BaseException): pass\nraise Panic('a native panic')\n", "a native panic"),
    "hook-raises": (HOOK + "raise RuntimeError('out of luck')\n", "RuntimeError: out of luck"),
    "misspelt-hook": (HOOK.replace("drafters", "drafter") + "pass\n", "unknown hook 'register_drafter'"),
    "wrong-argument": (HOOK.replace("(register)", "(add)") + "pass\n", "{'add'}"),
    "forgot-hookimpl": ("def register_drafters(register): pass\n", "hookimpl"),
    "name-no-text": (HOOK + "register(5, 'json:loads')\n", "5"),
    "name-empty": (HOOK + "register('', 'json:loads')\n", "register"),
    "help-no-text": (HOOK + "register('helpless', 'json:loads', None)\n", "None"),
    "class-as-target": (HOOK + "register('classy', dict)\n", "<class 'dict'>"),
    "target-without-class": (HOOK + "register('modular', 'json')\n", "'json'"),
    "half": (HOOK + "register('half-done', 'json:loads')\n    raise RuntimeError('half way')\n", "half way"),
}
POINTS = {
    "no-such-module": (
        "[draftmux]\nno-such-module-point = not_installed_here\n",
        "No module named 'not_installed_here'",
    ),
    "no-such-attribute": ("[draftmux]\nno-such-attribute-point = no_such_attribute:plugin\n", "no attribute 'plugin'"),
    "bad-value": ("[draftmux]\nbad-value-point = not a module\n", "Traceback"),
}
REASONS = {name: reason for name, (_, reason) in (BROKEN | POINTS).items()}


@pytest.fixture(scope="module")
def folders(package: Callable[..., Path], echo: Path) -> list[Path]:
    """All of them at once, and one that is fine."""
    found = [package(name, code) for name, (code, _) in BROKEN.items()]
    found += [package(name, "", points=points) for name, (points, _) in POINTS.items()]
    return [*found, echo]


@pytest.fixture(scope="module")
def listing(draftmux: Callable[..., Run], folders: list[Path]) -> Run:
    return draftmux("plugins", path=folders)


@pytest.fixture(scope="module")
def told(draftmux: Callable[..., Run], folders: list[Path]) -> dict[str, Any]:
    done = draftmux("plugins", "--json", path=folders)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def unknown(draftmux: Callable[..., Run], folders: list[Path], pipeline: Callable[[str], str]) -> Run:
    """What somebody is told who uses a name that nobody brought."""
    return draftmux("check", pipeline("  guess: {use: brought-by-a-broken-one}"), path=folders)


def test_help_and_version_work(draftmux: Callable[..., Run], folders: list[Path]) -> None:
    for option in ("--help", "--version"):
        done = draftmux(option, path=folders)
        assert (done.returncode, done.stderr) == (0, "")


def test_everything_else_is_listed(listing: Run, told: dict[str, Any]) -> None:
    assert (listing.returncode, listing.stderr) == (0, "")
    rows = [line.split() for line in listing.stdout.splitlines()]
    assert ["drafter", "echo", "draftmux-echo", "0.1.0"] in [row[:4] for row in rows]
    names = {(entry["kind"], entry["name"]) for entry in told["plugins"]}
    assert {("drafter", "pld"), ("router", "fixed"), ("verifier", "exact-match"), ("backend", "transformers")} <= names
    assert ("drafter", "echo") in names
    assert not {entry["package"] for entry in told["plugins"]} & set(REASONS)


def test_other_pipelines_work(
    draftmux: Callable[..., Run], folders: list[Path], pipeline: Callable[[str], str]
) -> None:
    done = draftmux("check", pipeline("  copy: {use: pld}\n  again: {use: echo}"), path=folders)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("name", REASONS)
def test_the_broken_one_is_listed_with_its_traceback(name: str, listing: Run, told: dict[str, Any]) -> None:
    [fault] = [broken for broken in told["broken"] if broken["package"] == name]
    assert (fault["version"], fault["entry_point"]) == ("1.2", f"{name}-point")
    assert fault["traceback"].startswith("Traceback (most recent call last):\n")
    assert REASONS[name] in fault["traceback"]
    assert f"NOT LOADED: {name} 1.2 (entry point {name}-point): " in listing.stdout
    assert REASONS[name] in listing.stdout


@pytest.mark.parametrize("name", REASONS)
def test_a_pipeline_that_may_need_it_is_told_why_it_is_missing(name: str, unknown: Run) -> None:
    assert unknown.returncode == 1
    assert "pipeline.yaml:4: unknown drafter 'brought-by-a-broken-one'" in unknown.stdout
    assert f"{name} 1.2 (entry point {name}-point):" in unknown.stdout
    assert REASONS[name] in unknown.stdout


def test_the_original_line_of_code_is_shown(unknown: Run) -> None:
    assert "raise RuntimeError('out of luck')" in unknown.stdout
    assert "hook_raises.py" in unknown.stdout


@pytest.mark.parametrize(
    "points", [b"[draftmux]\nno equals sign\n", b"[draftmux]\nname = \xff\xfe\n"], ids=["syntax", "bytes"]
)
def test_unreadable_entry_points_of_one_package_hide_no_other(
    points: bytes, package: Callable[..., Path], draftmux: Callable[..., Run], echo: Path
) -> None:
    folder = package("garbled", "")
    next(folder.glob("*.dist-info/entry_points.txt")).write_bytes(points)
    done = draftmux("plugins", "--json", path=[folder, echo])
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert {"pld", "echo", "exact-match"} <= {entry["name"] for entry in told["plugins"]}
    [fault] = told["broken"]
    assert (fault["package"], fault["version"]) == ("garbled", "1.2")


TARGETS = {
    "no-module": ("not_installed_here:Guess", "No module named 'not_installed_here'"),
    "no-class": ("lazy_targets:Missing", "has no attribute 'Missing'"),
    "late-import": ("late_import:Guess", "No module named 'late_dependency'"),
    "late-syntax": ("late_syntax:Guess", "SyntaxError"),
    "late-exit": ("late_exit:Guess", "SystemExit: leaving late"),
    "late-panic": ("late_panic:Guess", "a late panic"),
    "no-attrs": ("lazy_targets:register_drafters", "not an attrs class"),
    "abstract": ("draftmux.drafting:TokenDrafter", "attrs"),
    "no-drafter": ("draftmux.types:Budget", "lacks needs"),
}
LATE = {
    "late_import": "import late_dependency\n",
    "late_syntax": "class (:\n",
    "late_exit": "raise SystemExit('leaving late')\n",
    "late_panic": "class Panic(BaseException): pass\nraise Panic('a late panic')\n",
}


@pytest.fixture(scope="module")
def lazy(package: Callable[..., Path]) -> Path:
    """A package that registers well, but whose classes cannot be had."""
    calls = "; ".join(f"register('{name}', '{target}', 'late')" for name, (target, _) in TARGETS.items())
    return package("lazy-targets", HOOK + calls + "\n", modules=LATE)


def test_classes_that_cannot_be_had_are_listed_and_left_out_of_the_schema(
    lazy: Path, draftmux: Callable[..., Run]
) -> None:
    done = draftmux("plugins", "--json", path=[lazy])
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert {entry["name"] for entry in told["plugins"] if entry["package"] == "lazy-targets"} == set(TARGETS)
    assert told["broken"] == []
    done = draftmux("schema", path=[lazy])
    assert (done.returncode, done.stderr) == (0, "")
    drafters = json.loads(done.stdout)["$defs"]["drafter"]
    assert "pld" in drafters["properties"]["use"]["enum"]
    assert all(name in drafters["$comment"] for name in set(TARGETS) - {"no-drafter"})


@pytest.fixture(scope="module")
def faults(lazy: Path, draftmux: Callable[..., Run], pipeline: Callable[[str], str]) -> list[str]:
    """Every fault of a pipeline that uses them all, one a drafter, in file order from line 4 on."""
    path = pipeline("\n".join(f"  {name}: {{use: {name}}}" for name in TARGETS))
    done = draftmux("check", "--json", path, path=[lazy])
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is False
    return told["faults"]


@pytest.mark.parametrize("name", TARGETS)
def test_a_pipeline_that_uses_one_gets_its_package_and_its_traceback(name: str, faults: list[str]) -> None:
    line = 4 + list(TARGETS).index(name)
    [fault] = [fault for fault in faults if f"pipeline.yaml:{line}: " in fault]
    target, reason = TARGETS[name]
    assert reason in fault
    if name not in ("no-attrs", "abstract", "no-drafter"):
        assert f"drafter '{name}' of package lazy-targets 1.2 (entry point lazy-targets-point)" in fault
        assert f"could not be loaded from '{target}'" in fault
        assert "Traceback (most recent call last):" in fault
