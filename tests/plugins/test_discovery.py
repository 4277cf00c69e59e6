"""What is installed is found, once, and a name belongs to one package."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from draftmux.errors import PluginError
from draftmux.plugins import GROUP, discover
from draftmux.registry import KINDS, Registry

Run = subprocess.CompletedProcess[str]

HOOK = "from draftmux.hookspecs import hookimpl\n\n@hookimpl\ndef register_drafters(register):\n    "
TWICE = HOOK + "register('twice', 'draftmux_echo.drafter:Echo', 'a drafter')\n"


def test_an_installed_plugin_is_listed(echo: Path, draftmux: Callable[..., Run]) -> None:
    done = draftmux("plugins", path=[echo])
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["KIND", "NAME", "PACKAGE"]
    [row] = [row for row in rows if "draftmux-echo" in row]
    assert row.split(maxsplit=4) == [
        *("drafter", "echo", "draftmux-echo", "0.1.0"),
        "guess that the last few tokens come again",
    ]
    kinds = [row.split()[0] for row in rows]
    assert kinds == sorted(kinds, key=KINDS.index)


def test_an_installed_plugin_is_listed_as_json(echo: Path, draftmux: Callable[..., Run]) -> None:
    told = json.loads(draftmux("plugins", "--json", path=[echo]).stdout)
    assert set(told) == {"plugins", "loaded", "broken", "disabled", "warnings"}
    assert {
        "kind": "drafter",
        "name": "echo",
        "package": "draftmux-echo",
        "version": "0.1.0",
        "help": "guess that the last few tokens come again",
    } in told["plugins"]
    assert all(set(entry) == {"kind", "name", "package", "version", "help"} for entry in told["plugins"])


def test_an_installed_plugin_can_be_used(
    echo: Path, draftmux: Callable[..., Run], pipeline: Callable[[str], str]
) -> None:
    done = draftmux("check", "--json", pipeline("  again: {use: echo, width: 7}"), path=[echo])
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["resolved"]
    assert ["drafter", "again", "echo", "draftmux-echo 0.1.0", {"width": 7}] in rows


def test_its_options_are_checked(echo: Path, draftmux: Callable[..., Run], pipeline: Callable[[str], str]) -> None:
    done = draftmux("check", pipeline("  again: {use: echo, width: 0}\n  more: {use: echo, widht: 3}"), path=[echo])
    assert done.returncode == 1
    first, second = done.stdout.splitlines()
    assert "pipeline.yaml:4: drafters.again: 'width' must be >= 1: 0" in first
    assert "pipeline.yaml:5: unknown key 'widht' in drafters.more; did you mean 'width'?" in second
    assert done.stderr == "2 faults\n"


def test_its_options_are_in_the_schema(echo: Path, draftmux: Callable[..., Run]) -> None:
    schema = json.loads(draftmux("schema", path=[echo]).stdout)
    assert schema["$defs"]["drafter.echo"]["properties"]["width"]["description"] == "how many tokens to repeat"


def test_a_name_that_two_packages_publish_is_refused_where_it_is_used(
    package: Callable[..., Path], draftmux: Callable[..., Run], pipeline: Callable[[str], str]
) -> None:
    ours = "register('clash', 'draftmux.drafters.ngram.pld:PromptLookup')"
    path = [
        package("clash-one", HOOK + f"{ours}\n", version="1.0"),
        package(
            "clash-two", HOOK + f"{ours}; register('pld', 'draftmux.drafters.ngram.pld:PromptLookup')\n", version="2.0"
        ),
    ]
    listing = draftmux("plugins", path=path)
    assert (listing.returncode, listing.stderr) == (0, "")
    assert "clash-one 1.0" in listing.stdout
    assert "clash-two 2.0" in listing.stdout
    drafters = "  a: {use: clash}\n  b: {use: pld}\n  c: {use: copyspec}"
    done = draftmux("check", pipeline(drafters), path=path)
    assert done.returncode == 1
    clash, pld = done.stdout.splitlines()
    assert "pipeline.yaml:4: drafter 'clash' is published by " in clash
    assert "clash-one 1.0 (clash-one-point)" in clash
    assert "clash-two 2.0 (clash-two-point)" in clash
    assert "pipeline.yaml:5: drafter 'pld' is published by " in pld
    assert "draftmux 0.1.0 (builtin-drafters)" in pld
    assert "clash-two 2.0 (clash-two-point)" in pld


def test_one_name_may_stand_for_a_drafter_and_a_router(
    package: Callable[..., Path], draftmux: Callable[..., Run], pipeline: Callable[[str], str]
) -> None:
    register = "register('fixed', 'draftmux.drafters.ngram.pld:PromptLookup')\n"
    done = draftmux("check", pipeline("  a: {use: fixed}"), path=[package("homonym", HOOK + register)])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_found_twice_is_one_package(
    echo: Path, package: Callable[..., Path], draftmux: Callable[..., Run], pipeline: Callable[[str], str]
) -> None:
    """As when a source folder with its egg-info is on the path beside the installed package, or it is named anew."""
    first, second = package("Twice.Found", TWICE), package("twice-found", TWICE)
    points = "[draftmux]\ntwice-found-point = twice_found\n"
    for folder in (first, second):
        (folder / "twice_found.py").write_text(TWICE)
        next(folder.glob("*.dist-info/entry_points.txt")).write_text(points)
    egg = second / "twice_found.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: twice-found\nVersion: 1.2\n")
    (egg / "entry_points.txt").write_text(points)
    path = [first, second, echo]
    told = json.loads(draftmux("plugins", "--json", path=path).stdout)
    assert [entry["name"] for entry in told["plugins"]].count("twice") == 1
    assert told["broken"] == []
    done = draftmux("check", pipeline("  a: {use: twice}"), path=path)
    assert (done.returncode, done.stderr) == (0, "")


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_the_same_entry_point_listed_twice_is_one() -> None:
    found = discover([point("a", "draftmux.drafters"), point("a", "draftmux.drafters")])
    assert found.find("drafter", "pld").entry_point == "a"
    assert found.broken == []


def test_two_entry_points_of_one_package_can_clash() -> None:
    found = discover([point("a", "draftmux.drafters"), point("b", "draftmux.drafters")])
    with pytest.raises(PluginError, match=r"\(a\) and .*\(b\); report it to that package"):
        found.find("drafter", "pld")


def test_an_interrupt_is_no_broken_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: EntryPoint) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EntryPoint, "load", interrupt)
    with pytest.raises(KeyboardInterrupt):
        discover([point("a", "draftmux.drafters")])


def test_an_unknown_name_gets_a_suggestion_or_the_whole_list() -> None:
    found = discover([point("a", "draftmux.drafters")])
    with pytest.raises(PluginError, match=r"^unknown drafter 'pdl'; did you mean 'pld'\?$"):
        found.find("drafter", "pdl")
    with pytest.raises(
        PluginError, match=r"^unknown drafter 'xyzzy'; there is context-copy, copyspec, eagle3, merge, pld, sps"
    ):
        found.find("drafter", "xyzzy")
    with pytest.raises(PluginError, match=r"^unknown router 'fixed'; there is none$"):
        found.find("router", "fixed")
    with pytest.raises(PluginError, match="there is none"):
        Registry().find("drafter", "pld")


def test_everything_that_comes_with_draftmux_can_be_loaded_under_its_name() -> None:
    found = discover(point(kind, f"draftmux.{kind}") for kind in ("backends", "drafters", "routers", "verifiers"))
    assert found.broken == []
    entries = list(found)
    assert len(entries) >= 10
    for entry in entries:
        assert isinstance(entry.load(), type), entry
        assert entry.help, entry
        assert "\n" not in entry.help, entry
