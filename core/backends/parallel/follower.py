"""The other ranks' end: make the calls that rank 0 makes, until it says stop. Decides nothing, and returns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from attrs import evolve

from draftmux.backends.parallel.group import ignore_interrupts
from draftmux.backends.parallel.wire import Call, Close, Commit, Cost, Open, Score, Stop, decode

if TYPE_CHECKING:
    from draftmux.backends.parallel.group import Group
    from draftmux.protocols import BoundBackend

Handles = dict[int, Any]


def follow(group: Group, target: BoundBackend) -> NoReturn:
    """Run until rank 0 stops, then end this process: what comes after a target is loaded is rank 0's alone."""
    ignore_interrupts()
    handles: Handles = {}
    try:
        while all(make(call, target, handles) for call in decode(group.receive())):
            pass
    except Exception as error:
        group.give_up(error)
    group.leave()
    raise SystemExit(0)


def make(call: Call, target: BoundBackend, handles: Handles) -> bool:
    """Make one call, with this rank's own handles in place of numbers; False if it was the last."""
    match call:
        case Open(number, tokens):
            handles[number] = target.open(tokens).sequence
        case Score(rows):
            target.score([evolve(row, sequence=handles[row.sequence]) for row in rows])
        case Commit(number, path):
            target.commit(handles[number], path)
        case Close(number):
            target.close(handles.pop(number))
        case Cost(nodes):
            target.cost(nodes)
    return not isinstance(call, Stop)
