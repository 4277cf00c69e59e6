"""Standard output and input that are closed, full, gone, or write in another encoding."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest
from click.testing import Result as Invoked

import draftmux.pipeline
from draftmux.cli.main import main
from draftmux.engine.metrics import Metrics
from draftmux.results import Delta, Piece, Result

Command = Callable[..., Invoked]
Pipeline = Callable[..., str]

TEXT = "naïve 🙂\n"
TOLD = "[standard output is {}, so characters that it lacks were written as \\ escapes]\n"
HELP = [["--help"], ["--version"], ["run", "--help"], ["-h"]]  # click writes these itself
COMMANDS = [["check", "plain"], ["check", "plain", "--json"], ["check", "none.yaml"], ["schema"]]
RUNS = [["--prompt", "x"], ["--prompt", "x", "--json"], ["--prompt", "x", "--prompt", "y"]]


class Answers:
    """A pipeline that answers every prompt with the same text, in two pieces."""

    result = Result("r", 1, (1, 2), TEXT, "stop", Metrics(), True, 1.0)

    def generate(self, prompts: list[str]) -> list[Result]:
        return [self.result for _ in prompts]

    def stream(self, prompt: str) -> Iterator[Delta]:
        yield Delta("r", (Piece(1, TEXT[:3], "d"),))
        yield Delta("r", (Piece(2, TEXT[3:], "d"),), self.result)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draftmux.pipeline, "load", lambda *_: Answers())


@pytest.fixture
def into(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `draftmux` with a standard output, as its console script does; its exit code."""

    def run(stdout: TextIO | None, *arguments: str) -> int:
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
            patch.setattr(sys, "stdout", stdout)
            main(list(arguments), prog_name="draftmux")
        assert isinstance(left.value.code, int)
        return left.value.code

    return run


def encoded(encoding: str, errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors, write_through=True)


def unbuffered(descriptor: int) -> TextIO:
    return io.TextIOWrapper(os.fdopen(descriptor, "wb", buffering=0), encoding="utf-8", write_through=True)


@pytest.fixture(params=["full", "pipe"])
def broken(request: pytest.FixtureRequest) -> Iterator[tuple[TextIO, str]]:
    """A standard output that cannot be written, and what the system says of it."""
    if request.param == "full":
        with unbuffered(os.open("/dev/full", os.O_WRONLY)) as stream:
            yield stream, "No space left on device"
    else:
        reader, writer = os.pipe()
        os.close(reader)
        with unbuffered(writer) as stream:
            yield stream, "Broken pipe"


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("arguments", [*COMMANDS, *(["run", "x.yaml", *more] for more in RUNS)])
def test_what_cannot_be_written_is_told(
    arguments: list[str],
    broken: tuple[TextIO, str],
    into: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream, reason = broken
    assert into(stream, *arguments) == 1
    assert capsys.readouterr().err == f"Error: standard output cannot be written: {reason}; what follows is lost\n"


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("arguments", [*COMMANDS, *(["run", "x.yaml", *more] for more in RUNS)])
def test_a_closed_output_is_told(
    arguments: list[str], into: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert into(None, *arguments) == 1
    assert capsys.readouterr().err == "Error: standard output is closed; redirect it to a file, or leave it open\n"


@pytest.mark.parametrize("arguments", [*COMMANDS, *HELP])
@pytest.mark.parametrize("buffered", [True, False])
def test_nothing_else_is_told_at_exit(arguments: list[str], buffered: bool) -> None:
    """The interpreter writes what is left once more, and would complain a second time."""
    code = "from draftmux.cli.main import main; main(prog_name='draftmux')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, *([] if buffered else ["-u"]), "-c", code, *arguments]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("Error: standard output cannot be written: ")


@pytest.mark.parametrize("arguments", HELP)
def test_help_on_a_full_disk_is_told(
    arguments: list[str], into: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with unbuffered(os.open("/dev/full", os.O_WRONLY)) as stream:
        assert into(stream, *arguments) == 1
    said = capsys.readouterr().err
    assert said == "Error: standard output cannot be written: No space left on device; what follows is lost\n"


def test_an_error_that_is_not_of_the_output_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("a disk of its own")

    monkeypatch.setattr(draftmux.pipeline, "load", fail)
    with pytest.raises(OSError, match="a disk of its own"):
        main(["run", "x.yaml", "--prompt", "x"], prog_name="draftmux")


def test_a_package_that_was_written_is_told_even_if_its_list_cannot_be(
    broken: tuple[TextIO, str], into: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert into(broken[0], "new-plugin", "drafter", "parrot", "--out", str(tmp_path)) == 1
    folder = tmp_path / "draftmux-parrot"
    assert (folder / "pyproject.toml").is_file()
    assert capsys.readouterr().err == (
        f"Error: {folder} was written and is complete, but standard output cannot be written: {broken[1]}; "
        "what follows is lost\n"
    )


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize(
    ("encoding", "errors", "written", "told"),
    [
        ("utf-8", "strict", TEXT, ""),
        ("ascii", "strict", "na\\xefve \\U0001f642\n", TOLD.format("ascii")),
        ("iso8859-1", "strict", "naïve \\U0001f642\n", TOLD.format("iso8859-1")),
        ("ascii", "replace", "na?ve ?\n", ""),  # as its owner wished
    ],
)
def test_text_goes_out_in_any_encoding(
    encoding: str,
    errors: str,
    written: str,
    told: str,
    into: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for more, count in ((["--prompt", "x"], 1), (["--prompt", "x", "--prompt", "y"], 2)):
        stream = encoded(encoding, errors)
        assert into(stream, "run", "x.yaml", *more) == 0
        assert stream.buffer.getvalue().decode(encoding) == (written + "\n") * count  # type: ignore[attr-defined]
        assert "".join(line for line in capsys.readouterr().err.splitlines(True) if "ended by" not in line) == told


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "iso8859-1"])
def test_json_stays_json_in_any_encoding(
    encoding: str, into: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    stream = encoded(encoding)
    assert into(stream, "run", "x.yaml", "--prompt", "x", "--json") == 0
    assert json.loads(stream.buffer.getvalue().decode(encoding))["text"] == TEXT  # type: ignore[attr-defined]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_file_names_that_are_no_text_are_shown(json_option: list[str], into: Callable[..., int]) -> None:
    stream = encoded("utf-8")
    assert into(stream, "check", "caf\udce9.yaml", *json_option) == 1
    assert b"caf\\udce9.yaml: no such file" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_closed_input_is_told(
    into: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert into(encoded("utf-8"), "run", "plain", "-") == 1
    assert capsys.readouterr().err == (
        "Error: standard input cannot be read as UTF-8 text: it is closed; give the prompt through a pipe, or with "
        "--prompt or --prompt-file\n"
    )


@pytest.fixture
def bench(pipeline: Pipeline, tmp_path: Path) -> list[str]:
    """Arguments of a small comparison."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc abc"}\n')
    return ["bench", pipeline(), "--prompts", str(prompts), "--warmup", "0"]


def test_a_report_that_cannot_be_saved_is_still_shown(bench: list[str], command: Command, tmp_path: Path) -> None:
    lost = [word for name in ("json", "html", "plot") for word in (f"--{name}", "/dev/full")]
    result = command(*bench, *lost, code=1)
    assert "plain" in result.stdout and "prompts.jsonl" in result.stdout
    for name in ("json", "html", "plot"):
        assert f"Error: --{name} /dev/full could not be written: No space left on device\n" in result.stderr
    page = tmp_path / "page.html"
    command(*bench, "--json", "/dev/full", "--html", str(page), code=1)
    assert "prompts.jsonl" in page.read_text("utf-8")


def test_a_report_that_cannot_be_shown_is_still_saved(
    bench: list[str],
    broken: tuple[TextIO, str],
    into: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = tmp_path / "figures.json"
    assert into(broken[0], *bench, "--json", str(figures), "--html", "/dev/full") == 1
    assert len(json.loads(figures.read_text("utf-8"))["runs"]) == 2
    said = capsys.readouterr().err
    assert "Error: --html /dev/full could not be written: No space left on device\n" in said
    assert f"Error: standard output cannot be written: {broken[1]}; what follows is lost\n" in said


@pytest.mark.parametrize("path", ["a" * 5000, "a" * 300 + "/report.json"])
def test_a_name_that_no_file_can_have_is_told(path: str, bench: list[str], command: Command) -> None:
    said = command(*bench, "--json", path, code=1 if "/" not in path else 2).stderr
    assert f"--json {path}" in said
    assert "Traceback" not in said
