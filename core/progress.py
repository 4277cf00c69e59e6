"""Says on a terminal what takes long. Silent where nobody watches."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def working(what: str) -> AbstractContextManager[object]:
    """A spinner with the text `what` on stderr, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else nullcontext()
