"""Standard output, as commands write to it: at once, and what cannot be written is said, never lost in silence."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, TextIO

import click

TOLD = "draftmux.output.told"


def write(text: str) -> None:
    """Write text; ClickException when standard output is closed, full or gone.

    Characters that its encoding lacks are written as escapes (\\U0001f642), which is told once, at the end.
    """
    stream = sys.stdout
    if stream is None:  # what Python makes of a descriptor that was closed before the start
        raise click.ClickException("standard output is closed; redirect it to a file, or leave it open")
    try:
        stream.write(text if fits(text, stream) else _escaped(text, stream))
        stream.flush()
    except (OSError, ValueError) as error:  # ValueError: closed since the start
        sys.stdout = io.StringIO()  # at exit the interpreter would try again, and fail again
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"standard output cannot be written: {reason}; what follows is lost") from error


def write_json(data: Any, indent: int | None = None) -> None:
    """Write data as one JSON text, with JSON's own escapes for characters that the encoding lacks."""
    text = json.dumps(data, ensure_ascii=False, indent=indent)
    whole = sys.stdout is None or fits(text, sys.stdout)
    write((text if whole else json.dumps(data, indent=indent)) + "\n")


class Twin(io.StringIO):
    """Looks like standard output to a library that formats for a stream, and only collects, for `write`."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What standard output can write."""
        return getattr(sys.stdout, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether colours are shown."""
        return sys.stdout is not None and sys.stdout.isatty()


def fits(text: str, stream: TextIO) -> bool:
    """Whether the stream can write every character, in the way that it was told to handle errors."""
    try:
        text.encode(stream.encoding or "utf-8", stream.errors or "strict")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(text: str, stream: TextIO) -> str:
    context, encoding = click.get_current_context(), stream.encoding or "utf-8"
    if not context.meta.get(TOLD):
        context.meta[TOLD] = True
        message = f"[standard output is {encoding}, so characters that it lacks were written as \\ escapes]"
        context.call_on_close(lambda: click.echo(message, err=True))
    return text.encode(encoding, "backslashreplace").decode(encoding)
