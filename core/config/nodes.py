"""A YAML document as a tree that knows where each key and value stands. Immutable, so aliases may share nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from draftmux.config.faults import Place

Value = str | int | float | bool | None
SHOWN = 60  # characters of a value that a message quotes


@frozen(eq=False)
class Scalar:
    """A value that holds no others."""

    value: Value
    place: Place


@frozen(eq=False)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@frozen(eq=False)
class Entry:
    """A value under a key; `place` is the key's."""

    place: Place
    node: Node


@frozen(eq=False)
class Mapping:
    """Keys and values, in file order."""

    entries: dict[Value, Entry]
    place: Place

    def having(self, key: Value, entry: Entry) -> Mapping:
        """A copy with one entry set."""
        return Mapping({**self.entries, key: entry}, self.place)

    def without(self, *keys: Value) -> Mapping:
        """A copy that lacks some keys."""
        return Mapping({key: entry for key, entry in self.entries.items() if key not in keys}, self.place)


@frozen(eq=False)
class Refused:
    """Stands for a value that could not be read; `reason` is the fault."""

    reason: str
    place: Place


Node = Scalar | Sequence | Mapping | Refused


def children(node: Node) -> tuple[Node, ...]:
    """The values right below a node."""
    if isinstance(node, Sequence):
        return node.items
    return tuple(entry.node for entry in node.entries.values()) if isinstance(node, Mapping) else ()


def size(node: Node) -> int:
    """Number of values in a tree, aliases counted as often as they are used."""
    return 1 + sum(size(child) for child in children(node))


def plain(node: Node) -> Any:
    """The tree as dicts, lists and scalars."""
    match node:
        case Scalar(value=value):
            return value
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Mapping(entries=entries):
            return {key: plain(entry.node) for key, entry in entries.items()}
    return None


def tree(data: Any, place: Place) -> Node:
    """Dicts, lists and scalars as a tree that stands in one place; the opposite of `plain`.

    Numbers and arrays of NumPy count as the Python values that they hold.
    """
    data = _python(data)
    if isinstance(data, dict):
        return Mapping({_python(key): Entry(place, tree(value, place)) for key, value in data.items()}, place)
    if isinstance(data, (list, tuple)):
        return Sequence(tuple(tree(item, place) for item in data), place)
    return Scalar(data, place)


def _python(data: Any) -> Any:
    return data.tolist() if isinstance(data, (np.generic, np.ndarray)) else data


def show(node: Node) -> str:
    """The node as messages name it."""
    match node:
        case Scalar(value=str() as text):
            return f"the text {quote(text)}"
        case Scalar(value=None):
            return "null"
        case Scalar(value=bool() as truth):
            return str(truth).lower()
        case Scalar(value=number):
            return shorten(repr(number))
    return "a list" if isinstance(node, Sequence) else "a mapping"


def quote(key: Value) -> str:
    """A key or text in quotes, on one line and not too long."""
    return shorten(repr(str(key)))


def shorten(text: str) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
