"""Every error that draftmux raises on purpose. Messages name the thing, the rule, the value and the way out."""

from __future__ import annotations

import enum
import functools
import signal
import traceback
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class DraftmuxError(Exception):
    """Base of all of them; the command line prints the message alone, without a traceback.

    When one request of a list fails, `finished` holds the results of the list, None for those that failed.
    """

    finished: Sequence[Any] = ()


class DraftError(DraftmuxError):
    """A draft breaks the rules of a draft tree."""


class ModelError(DraftmuxError):
    """Weights or a tokenizer cannot be found, fetched, trusted or used."""


class PluginError(DraftmuxError):
    """A plugin could not be loaded, is unknown, or misbehaved during a step."""


class RequestError(DraftmuxError):
    """A request cannot be served: bad prompt, bad sampling value, too long."""


class DeadEndError(RequestError):
    """No token can follow a prefix: bans leave nothing, or the target's logits are not numbers."""


class PipelineError(DraftmuxError):
    """A pipeline file is wrong. `faults` holds all of its faults, one sentence each, in file order."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


def said(error: BaseException) -> str:
    """What an exception says. A plugin's own exception class may fail even at that."""
    try:
        return str(error)
    except BaseException as failure:
        if from_outside(failure):
            raise
        return "(no message)"


def from_outside(error: BaseException) -> bool:
    """Whether a signal asks the process to stop, by an interrupt or a handler's own exception: no plugin's fault."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code(handler: Any) -> Any:
    """The code that runs when a signal comes."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler) or isinstance(handler, enum.Enum):
        return None
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` when a known name is close to `name`, otherwise the list of what there is."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; there is {', '.join(names)}" if names else "; there is none"
