"""What the user disables is never imported, is listed as disabled, and is named where it may be missing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from draftmux import plugins
from draftmux.cli.main import main
from draftmux.plugins import DISABLE, EVERYTHING, NOTHING, Disabled, Source

Run = subprocess.CompletedProcess[str]
BUILTIN = EntryPoint("builtin-drafters", "draftmux.drafters", "draftmux")


@pytest.fixture
def told(draftmux: Callable[..., Run], marked: Any) -> Callable[..., dict[str, Any]]:
    """What `plugins --json` says when this is disabled."""

    def ask(disabled: str, *flags: str) -> dict[str, Any]:
        done = draftmux(*flags, "plugins", "--json", path=marked.path, env=marked.env | {DISABLE: disabled})
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return ask


def points(listed: list[dict[str, Any]]) -> list[str]:
    return sorted(point["entry_point"] for point in listed if point["package"].startswith("mark-"))


WORDS = [(word, ()) for word in ("1", " ALL ", "true", "Yes", "ON", "*", "mark-one,1", "nobody , TRUE")]


@pytest.mark.parametrize(("disabled", "flags"), [*WORDS, ("", ("--no-plugins",))])
def test_everything_that_is_not_draftmux_can_be_disabled(
    disabled: str, flags: tuple[str, ...], told: Callable[..., dict[str, Any]], marked: Any
) -> None:
    found = told(disabled, *flags)
    assert marked.imported() == []
    assert {entry["package"] for entry in found["plugins"]} == {"draftmux"}
    assert {"pld", "fixed", "exact-match", "transformers"} <= {entry["name"] for entry in found["plugins"]}
    assert {point["package"] for point in found["loaded"]} == {"draftmux"}
    assert points(found["disabled"]) == ["left-point", "mark-one-point", "right"]
    [one] = [point for point in found["disabled"] if point["package"] == "mark-one"]
    assert one["version"] == "1.2"
    assert "--no-plugins" in one["reason"] and f"{DISABLE}=all" in one["reason"]
    assert found["broken"] == []
    assert len(found["warnings"]) == ("nobody" in disabled)


@pytest.mark.parametrize(
    ("disabled", "imported", "left_alone"),
    [
        ("Mark__One", ["mark_left", "mark_right"], ["mark-one-point"]),
        ("mark.two", ["mark_one"], ["left-point", "right"]),
        (" left_point ,", ["mark_one", "mark_right"], ["left-point"]),
        ("right,mark-one", ["mark_left"], ["mark-one-point", "right"]),
        ("0", ["mark_left", "mark_one", "mark_right"], []),
        ("False", ["mark_left", "mark_one", "mark_right"], []),
        ("off,no", ["mark_left", "mark_one", "mark_right"], []),
        (" , ", ["mark_left", "mark_one", "mark_right"], []),
    ],
)
def test_packages_and_entry_points_can_be_disabled(
    disabled: str,
    imported: list[str],
    left_alone: list[str],
    told: Callable[..., dict[str, Any]],
    marked: Any,
) -> None:
    found = told(disabled)
    assert marked.imported() == imported
    assert points(found["disabled"]) == left_alone
    assert len(points(found["loaded"])) == 3 - len(left_alone)
    assert found["warnings"] == []


def test_the_table_names_what_is_disabled_and_what_nobody_has(draftmux: Callable[..., Run], marked: Any) -> None:
    env = marked.env | {DISABLE: "mark-one,mark-tow,draftmux,builtin-drafters"}
    done = draftmux("plugins", path=marked.path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    reason = f"disabled by {DISABLE}; take 'mark-one' out of it"
    assert f"DISABLED: mark-one 1.2 (entry point mark-one-point): {reason}\n" in done.stdout
    unknown = f"{DISABLE}: no package or entry point besides draftmux's own is named"
    assert f"{unknown} 'mark-tow'; did you mean 'mark-two'?\n" in done.stdout
    assert f"{unknown} 'draftmux'" in done.stdout and f"{unknown} 'builtin-drafters'" in done.stdout
    assert done.stdout.count(unknown) == 3
    assert marked.imported() == ["mark_left", "mark_right"]


def test_every_command_warns_once_of_a_name_that_nobody_has(
    draftmux: Callable[..., Run], marked: Any, pipeline: Callable[[str], str]
) -> None:
    env, path = marked.env | {DISABLE: "ture,mark-one"}, pipeline("  a: {use: pld}\n  b: {use: pld}")
    warning = f"Warning: {DISABLE}: no package or entry point besides draftmux's own is named 'ture'; did you mean "
    for arguments in (
        ["check", path],
        ["run", path, "--prompt", "x", "--max-new-tokens", "0"],
        ["bench", path, "--prompts", "none.jsonl"],
        ["demo", "--max-new-tokens", "0"],
        ["schema"],
    ):
        done = draftmux(*arguments, path=marked.path, env=env)
        assert done.stderr.count(DISABLE) == 1, arguments
        assert f"{warning}'true'?\n" in done.stderr
        assert DISABLE not in done.stdout
        assert DISABLE not in draftmux("--no-plugins", *arguments, path=marked.path, env=env).stderr
    assert draftmux("check", path, path=marked.path, env=marked.env | {DISABLE: "mark-one"}).stderr == ""


@pytest.mark.parametrize("flags", [("--no-plugins",), ()])
def test_a_pipeline_that_names_a_disabled_plugin_is_told_how_to_have_it(
    flags: tuple[str, ...], draftmux: Callable[..., Run], marked: Any, pipeline: Callable[[str], str]
) -> None:
    path = pipeline("  a: {use: one}\n  b: {use: pld}")
    env = marked.env | {DISABLE: "" if flags else "mark-one"}
    done = draftmux(*flags, "check", path, path=marked.path, env=env)
    assert done.returncode == 1
    assert "pipeline.yaml:4: unknown drafter 'one'" in done.stdout
    way_out = "run without" if flags else "take 'mark-one' out of it"
    [line] = [line for line in done.stdout.splitlines() if line.startswith("mark-one 1.2 (entry point mark-one-point)")]
    assert line.endswith(way_out)
    assert "mark_one" not in marked.imported()
    done = draftmux("check", path, path=marked.path, env=marked.env)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_would_break_does_not_when_it_is_disabled(
    package: Callable[..., Path], draftmux: Callable[..., Run]
) -> None:
    garbled, raises = package("garbled", ""), package("raises", "raise SystemExit\n")
    next(garbled.glob("*.dist-info/entry_points.txt")).write_text("[draftmux]\nno equals sign\n")
    done = draftmux("plugins", "--json", path=[garbled, raises], env={DISABLE: "garbled,raises"})
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["broken"] == []
    assert {"garbled", "raises"} == {point["package"] for point in found["disabled"]}


def test_the_flag_holds_for_one_command_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def packages() -> set[str]:
        return {
            point["package"] for point in json.loads(CliRunner().invoke(main, ["plugins", "--json"]).stdout)["loaded"]
        }

    for before in (None, "draftmux-nowhere"):
        monkeypatch.delenv(DISABLE, raising=False)
        if before is not None:
            monkeypatch.setenv(DISABLE, before)
        told = json.loads(CliRunner().invoke(main, ["--no-plugins", "plugins", "--json"]).stdout)
        assert {point["package"] for point in told["loaded"]} == {"draftmux"}
        assert os.environ.get(DISABLE) == before
        assert packages() == {point.package for point in plugins.registry().loaded}


def test_the_variable_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DISABLE, raising=False)
    everything = plugins.registry()
    assert plugins.registry() is everything
    monkeypatch.setenv(DISABLE, "all")
    assert {entry.package for entry in plugins.registry()} == {"draftmux"}
    monkeypatch.delenv(DISABLE)
    assert plugins.registry() is everything


def test_a_package_that_calls_itself_draftmux_is_not(draftmux: Callable[..., Run], spoof: Any) -> None:
    done = draftmux("--no-plugins", "plugins", "--json", path=spoof.path, env=spoof.env)
    assert "spoof" in [point["entry_point"] for point in json.loads(done.stdout)["disabled"]]
    assert spoof.imported() == []
    done = draftmux("plugins", "--json", path=spoof.path, env=spoof.env)
    assert "spoof" in [entry["name"] for entry in json.loads(done.stdout)["plugins"]]  # where plugins are allowed
    assert spoof.imported() == ["pretender"]


def own(package: str, value: str) -> bool:
    return Source(package, "1", "point", EntryPoint("point", value, "draftmux")).own


def test_own_is_what_is_called_draftmux_and_lives_there() -> None:
    for value in ("draftmux", "draftmux.drafters", "draftmux.drafters:hooks", "draftmux.x [extra]", "draftmux : hooks"):
        assert own("draftmux", value) and own("DraftMux", value)
        assert not own("draftmux-echo", value)
    for value in ("draftmux_x", "x.draftmux", "draftmuxx.y", "x", "", "[draftmux]", "x:draftmux", "Draftmux.x"):
        assert not own("draftmux", value)


NAMES = st.from_regex(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", fullmatch=True).filter(
    lambda name: name not in EVERYTHING | NOTHING | {"draftmux"}
)


@given(st.lists(NAMES, max_size=4), NAMES, NAMES, st.sampled_from("-_."), st.booleans())
def test_names_are_compared_in_their_normal_form(
    disabled: list[str], package: str, point: str, mark: str, upper: bool
) -> None:
    written = " , ".join(disabled).replace("-", mark * 2)
    parsed = Disabled.parse(written.upper() if upper else written)
    reason = parsed.reason(Source(package.replace("-", mark), "1", point.title()))
    assert (reason is not None) == bool({package, point} & set(disabled))
    assert parsed.reason(Source("Draftmux", "1", disabled[0] if disabled else "a", BUILTIN)) is None


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    disabled = Disabled.parse(text)
    assert disabled.reason(Source("draftmux", "1", text, BUILTIN)) is None
    assert "" not in disabled.names
