"""The user's files, and the documents in them. Whatever cannot be used is skipped with a reason; knows no tokens."""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from draftmux.errors import RequestError
from draftmux_rest.datastore import file_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Document = str | list[dict[str, Any]]  # a text, or a chat
JSON_LINES = {".jsonl", ".ndjson"}


@frozen
class Fields:
    """Which keys of a JSON Lines object hold texts, and which hold chats (lists of `{"role", "content"}`)."""

    texts: tuple[str, ...] = ("text",)
    chats: tuple[str, ...] = ()


@define
class Skipped:
    """What was left out: how many, and the first of them with their reasons."""

    count: int = 0
    first: list[str] = field(factory=list)
    shown: int = 10

    def add(self, where: str | Path, reason: str) -> None:
        """Count one, and keep it if it is among the first."""
        self.count += 1
        if len(self.first) < self.shown:
            self.first.append(f"{printable(where)}: {reason}")


def printable(name: str | Path) -> str:
    """A file's name as text, even one that is not UTF-8."""
    return os.fsencode(name).decode(errors="replace")


def find_files(paths: Sequence[Path], globs: Sequence[str], outside: Path, skipped: Skipped) -> list[Path]:
    """Every named file, and every file in the named folders whose name matches one of `globs`, each once and sorted.

    Nothing inside the folder `outside` is taken, and links to folders are not followed. RequestError for a path that
    does not exist.
    """
    found: dict[str, Path] = {}
    barred = os.path.realpath(outside) + os.sep
    for path in paths:
        if not os.path.lexists(path):
            raise RequestError(f"there is no file or folder '{printable(path)}'; name existing files or folders")
        for file in _walk(path, globs, skipped) if os.path.isdir(path) else [path]:
            real = os.path.realpath(file)
            if not real.startswith(barred):
                found.setdefault(real, file)
    return sorted(found.values())


def _walk(top: Path, globs: Sequence[str], skipped: Skipped) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        skipped.add(error.filename, f"cannot be listed: {error.strerror}")

    for folder, folders, files in os.walk(top, onerror=unreadable):
        folders.sort()
        yield from (Path(folder, name) for name in files if any(fnmatch(name, glob) for glob in globs))


def describe(path: Path, skipped: Skipped) -> dict[str, Any] | None:
    """Name, size and hash of a regular file that can be read; None, and a reason, of anything else."""
    try:
        if path.is_file():
            return {"path": printable(path), "bytes": path.stat().st_size, "sha256": file_hash(path)}
        skipped.add(path, "not a regular file")  # reading a pipe would wait for ever
    except OSError as error:
        skipped.add(path, f"cannot be read: {error.strerror or error}")
    return None


def read_documents(path: Path, fields: Fields, skipped: Skipped) -> Iterator[Document]:
    """The documents of a regular file: the whole text, or what each line of a JSON Lines file holds."""
    try:
        if path.suffix.lower() in JSON_LINES:
            yield from _json_lines(path, fields, skipped)
        else:
            yield from _whole(path, skipped)
    except OSError as error:
        skipped.add(path, f"cannot be read: {error.strerror or error}")


def _whole(path: Path, skipped: Skipped) -> Iterator[str]:
    content = path.read_bytes()
    text = _decoded(content)
    if text is None:
        skipped.add(path, "binary, or not UTF-8 text")
    elif not text.strip():
        skipped.add(path, "empty")
    else:
        yield text


def _decoded(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _json_lines(path: Path, fields: Fields, skipped: Skipped) -> Iterator[Document]:
    empty = True
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                empty = False
                yield from _json_line(line, f"{path}:{number}", fields, skipped)
    if empty:
        skipped.add(path, "empty")


def _json_line(line: bytes, where: str, fields: Fields, skipped: Skipped) -> Iterator[Document]:
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        skipped.add(where, "not JSON in UTF-8")
        return
    if not isinstance(data, dict):
        skipped.add(where, "not a JSON object")
        return
    texts = [data[key] for key in fields.texts if _is_text(data.get(key))]
    chats = [data[key] for key in fields.chats if _is_chat(data.get(key))]
    yield from texts
    yield from chats
    if not texts and not chats:
        wanted = ", ".join((*fields.texts, *fields.chats))
        skipped.add(where, f"no text in {wanted}; its keys: {', '.join(data)[:100] or 'none'}")


def _is_text(value: Any) -> bool:
    # JSON's escapes can spell half a surrogate pair, which is no text.
    return (
        isinstance(value, str) and bool(value.strip()) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    )


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)
