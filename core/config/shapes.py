"""What an option may hold: one class per kind of type, which checks a node, builds the value, and describes itself
in JSON Schema. Strict: nothing is converted silently. Knows nothing of plugins.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

from attrs import evolve, frozen

from draftmux.config.faults import Faults
from draftmux.config.nodes import Entry, Mapping, Node, Refused, Scalar, Sequence, plain, show
from draftmux.errors import did_you_mean

INVALID: Any = object()  # stands for a value whose fault is recorded


class Shape(ABC):
    """One kind of value."""

    @property
    @abstractmethod
    def wanted(self) -> str:
        """What messages say a value must be."""

    @final
    def build(self, entry: Entry, path: str, faults: Faults) -> Any:
        """The value of a node; INVALID, and a fault, if it is not of this shape. Containers may hold INVALID inside."""
        if isinstance(entry.node, Refused):
            faults.add(entry.node.place, entry.node.reason)
            return INVALID
        if not self.fits(entry.node):
            faults.add(entry.node.place, f"{path} must be {self.wanted}, not {show(entry.node)}")
            return INVALID
        return self.make(entry, path, faults)

    @abstractmethod
    def fits(self, node: Node) -> bool:
        """Whether the node is of the right kind, whatever it holds."""

    @abstractmethod
    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        """The value of a node that fits."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON Schema of this shape."""

    def filled(self, plug: Callable[[str], Shape]) -> Shape:
        """The same with the shape of a plugin of its kind in the place of every `Plug`."""
        return self


@frozen
class Plain(Shape):
    """A scalar of one Python type, taken as it is."""

    type: type
    wanted: str
    json: str

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and type(node.value) is self.type

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        return plain(entry.node)

    def schema(self) -> dict[str, Any]:
        return {"type": self.json}


TEXT = Plain(str, "text", "string")
INTEGER = Plain(int, "an integer", "integer")
BOOLEAN = Plain(bool, "true or false", "boolean")
NULL = Plain(type(None), "null", "null")


@frozen
class Number(Shape):
    """A finite float; whole numbers may be written without a point."""

    wanted: str = "a number"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and type(node.value) in (int, float)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        try:
            value = float(plain(entry.node))
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            faults.add(entry.node.place, f"{path} must be a finite number, not {show(entry.node)}")
            return INVALID
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "number"}


@frozen
class Anything(Shape):
    """Dicts, lists and scalars as they stand."""

    wanted: str = "anything"

    def fits(self, node: Node) -> bool:
        return True

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        return plain(entry.node)

    def schema(self) -> dict[str, Any]:
        return {}


@frozen
class Choice(Shape):
    """One of several values."""

    base: Shape
    values: tuple[Any, ...]

    @property
    def wanted(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"

    def fits(self, node: Node) -> bool:
        return self.base.fits(node)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        value = self.base.build(entry, path, faults)
        if value is INVALID or any(value == known for known in self.values):
            return value
        hint = did_you_mean(str(value), map(str, self.values))
        faults.add(entry.node.place, f"{path} cannot be {show(entry.node)}{hint}")
        return INVALID

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.values)}


@frozen
class Parsed(Shape):
    """A value that is written as text; `parse` raises ValueError when it cannot be read."""

    parse: Callable[[str], Any]
    wanted: str = "text"

    def fits(self, node: Node) -> bool:
        return TEXT.fits(node)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        with faults.catching(entry.node.place, path):  # a parser of a plugin may raise anything
            return self.parse(plain(entry.node))
        return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@frozen
class Either(Shape):
    """A value of one of several shapes."""

    shapes: tuple[Shape, ...]

    @property
    def wanted(self) -> str:
        return " or ".join(shape.wanted for shape in self.shapes)

    def fits(self, node: Node) -> bool:
        return any(shape.fits(node) for shape in self.shapes)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        fitting = [shape for shape in self.shapes if shape.fits(entry.node)]
        fitting.sort(key=lambda shape: isinstance(shape, Number))  # an integer stays one where integers are allowed
        for shape in fitting[:-1]:
            trial = Faults()
            value = shape.build(entry, path, trial)
            if not trial:
                return value
        return fitting[-1].build(entry, path, faults)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [shape.schema() for shape in self.shapes]}

    def filled(self, plug: Callable[[str], Shape]) -> Shape:
        return evolve(self, shapes=tuple(shape.filled(plug) for shape in self.shapes))


@frozen
class Worded(Shape):
    """A value of another shape, or a word that stands for one."""

    base: Shape
    words: dict[str, Any]

    @property
    def wanted(self) -> str:
        return " or ".join((self.base.wanted, *self.words))

    def fits(self, node: Node) -> bool:
        return self.base.fits(node) or TEXT.fits(node)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        if not TEXT.fits(entry.node):
            return self.base.build(entry, path, faults)
        word = plain(entry.node)
        if word in self.words:
            return self.words[word]
        hint = did_you_mean(word, self.words)
        faults.add(entry.node.place, f"{path} must be {self.wanted}, not {show(entry.node)}{hint}")
        return INVALID

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.base.schema(), {"enum": list(self.words)}]}


@frozen
class Items(Shape):
    """A list; `collect` makes the final collection of it."""

    item: Shape
    collect: Callable[[list[Any]], Any] = list
    wanted: str = "a list"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Sequence)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        assert isinstance(entry.node, Sequence)
        items = enumerate(entry.node.items)
        return self.collect([self.item.build(Entry(item.place, item), f"{path}[{at}]", faults) for at, item in items])

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema()}

    def filled(self, plug: Callable[[str], Shape]) -> Shape:
        return evolve(self, item=self.item.filled(plug))


@frozen
class Plug(Shape):
    """Stands for a plugin of a kind, in the shape of a class that holds one, until it is known which there are."""

    kind: str
    wanted: str = "a mapping such as {use: NAME}"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        raise NotImplementedError(f"which {self.kind}s there are was never said")

    def filled(self, plug: Callable[[str], Shape]) -> Shape:
        return plug(self.kind)

    def schema(self) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self.kind}"}


@frozen
class Table(Shape):
    """A mapping with free keys."""

    key: Shape
    value: Shape
    wanted: str = "a mapping"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        assert isinstance(entry.node, Mapping)
        table = {}
        for name, found in entry.node.entries.items():
            key = self.key.build(Entry(found.place, Scalar(name, found.place)), f"a key of {path}", faults)
            value = self.value.build(found, f"{path}.{name}", faults)
            if key is not INVALID:
                table[key] = value
        return table

    def schema(self) -> dict[str, Any]:
        schema = {"type": "object", "additionalProperties": self.value.schema()}
        if self.key == INTEGER:  # JSON knows keys as text only
            schema["propertyNames"] = {"pattern": "^[-+]?[0-9]+$"}
        return schema

    def filled(self, plug: Callable[[str], Shape]) -> Shape:
        return evolve(self, value=self.value.filled(plug))
