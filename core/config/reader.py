"""From YAML 1.2 text to located nodes. Data only: tags are refused, and scalars follow the core schema to the letter.

Works on the parser's events, since they know what the composed nodes no longer tell: written tags, and where an
anchor is still open. Knows nothing of pipelines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attrs import define, field
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)
from ruamel.yaml.scanner import Scanner, ScannerError

from draftmux.config.faults import Faults, Place
from draftmux.config.nodes import Entry, Mapping, Node, Refused, Scalar, Sequence, Value, quote, size

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 20
MAX_BRACKETS = 64  # open at once; the parser's time grows with their square, so it must not see more
MAX_ALIASED = 500  # values that aliases may add to a file

_WORDS: dict[str, Value] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Python refuses to read integers of thousands of digits; such a word stays text, which no option for numbers takes.
_INTEGER = re.compile(r"[-+]?[0-9]{1,1000}|0o[0-7]{1,1000}|0x[0-9a-fA-F]{1,1000}")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def read(text: str, origin: str, faults: Faults) -> Node | None:
    """The one document of a file; None, and a fault, if there is none or it breaks YAML's syntax."""
    before = len(faults)
    documents = _documents(_Composer(text, origin, faults), faults, Place(origin, 1))
    if len(documents) == 1:
        return documents[0]
    if len(faults) == before:
        faults.add(
            Place(origin, 1), f"the file holds {len(documents) or 'no'} YAML documents; it must hold one mapping"
        )
    return None


def read_value(text: str, place: Place, faults: Faults) -> Node:
    """The value of a `--set`: a scalar, or a list or mapping in flow style. Everything in it stands at `place`."""
    composer = _Composer(text, place.origin, faults, fixed=place, flow_only=True)
    before = len(faults)
    documents = _documents(composer, faults, place)
    if len(documents) > 1:
        faults.add(place, "holds several YAML documents; give one value")
    if len(faults) > before:
        return Refused(faults.found[-1][1], place)
    return documents[0] if documents else Scalar(None, place)  # nothing at all is YAML's way to write null


def resolve(text: str) -> Value:
    """What an unquoted scalar means in the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text if base == 10 else text[2:], base)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.lower().replace(".", ""))
    return text


def _documents(composer: _Composer, faults: Faults, start: Place) -> list[Node]:
    before = len(faults)
    try:
        return composer.documents()
    except YAMLError as error:
        place, problem = _syntax_fault(error, composer, start)
    except (ValueError, OverflowError) as error:  # an escape such as "\UFFFFFFFF" that is no character
        place, problem = composer.last, f"not valid YAML: {error}"
    del faults.found[before:]  # what was found before a syntax error is often its consequence
    faults.add(place, problem)
    return []


def _syntax_fault(error: YAMLError, composer: _Composer, start: Place) -> tuple[Place, str]:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        problem = getattr(error, "problem", None) or getattr(error, "context", None)
        return composer.place(mark), f"not valid YAML at column {mark.column + 1}: {problem}"
    reason = getattr(error, "reason", "cannot be read")
    position = getattr(error, "position", 0)
    lines_before = composer.text.count("\n", 0, position)
    place = start if start.line is None else Place(start.origin, 1 + lines_before)
    return place, f"not valid YAML: character {position + 1} of the text: {reason}"


class _Scanner(Scanner):
    """Stops at too many open brackets."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803
        if self.flow_level == MAX_BRACKETS:
            problem = f"more than {MAX_BRACKETS} open brackets; values may be nested {MAX_DEPTH} deep"
            raise ScannerError(problem=problem, problem_mark=self.reader.get_mark())
        super().fetch_flow_collection_start(TokenClass, to_push)


@define
class _Composer:
    """Builds nodes from parser events."""

    text: str
    origin: str
    faults: Faults
    fixed: Place | None = None
    flow_only: bool = False
    anchors: dict[str, Node | None] = field(factory=dict)  # None while the anchored value is still open
    aliased: int = 0
    bomb: Refused | None = None
    last: Place = field(init=False)
    events: Iterator[Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.last = self.fixed or Place(self.origin, 1)
        yaml = YAML(typ="safe", pure=True)
        yaml.Scanner = _Scanner
        self.events = yaml.parse(self.text)

    def place(self, mark: Any) -> Place:
        return self.fixed or Place(self.origin, mark.line + 1)

    def documents(self) -> list[Node]:
        found = []
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                self._check_version(event)
                found.append(self._node(next(self.events), depth=0))
        return found

    def _check_version(self, event: Any) -> None:
        if event.version is not None and tuple(event.version) != (1, 2):
            written = ".".join(map(str, event.version))
            self.faults.add(self.place(event.start_mark), f"pipeline files are YAML 1.2, not {written}")

    def _refuse(self, place: Place, reason: str) -> Refused:
        self.faults.add(place, reason)
        return Refused(reason, place)

    def _node(self, event: Any, depth: int) -> Node:
        place = self.last = self.place(event.start_mark)
        if isinstance(event, AliasEvent):
            return self._alias(event.anchor, place)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        node = self._value(event, place, depth)
        if event.tag is not None:
            reason = f"YAML tag '{event.tag}' is refused, since nothing executes from data; remove it"
            node = self._refuse(place, reason)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _value(self, event: Any, place: Place, depth: int) -> Node:
        if isinstance(event, ScalarEvent):
            return self._scalar(event, place)
        if self.flow_only and not event.flow_style:
            self._skip()
            return self._refuse(place, "write the value in quotes if it is text, or as [a, b] or {key: value}")
        if depth == MAX_DEPTH:
            self._skip()
            return self._refuse(place, f"nested more than {MAX_DEPTH} deep")
        return self._mapping(place, depth) if isinstance(event, MappingStartEvent) else self._sequence(place, depth)

    def _skip(self) -> None:
        """Pass over the rest of an open collection."""
        open_collections = 1
        while open_collections:
            event = next(self.events)
            open_collections += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)

    def _scalar(self, event: Any, place: Place) -> Node:
        text = str(event.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            return self._refuse(place, f"text {quote(text)} holds half of a surrogate pair, which is no character")
        return Scalar(text if event.style is not None else resolve(text), place)

    def _sequence(self, place: Place, depth: int) -> Node:
        items = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return Sequence(tuple(items), place)

    def _mapping(self, place: Place, depth: int) -> Node:
        entries: dict[Value, Entry] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self.events), depth + 1)
            if isinstance(value, Scalar) and value.value is None:  # the parser puts a missing value into the next line
                value = Scalar(None, key.place)
            self._add(entries, key, value)
        return Mapping(entries, place)

    def _add(self, entries: dict[Value, Entry], key: Node, value: Node) -> None:
        if isinstance(key, Refused):
            return
        if not isinstance(key, Scalar):
            self.faults.add(key.place, "a key must be one word, not a list or mapping")
        elif key.value in entries:
            first = entries[key.value].place
            where = f" in line {first.line}" if first.line is not None else ""
            self.faults.add(key.place, f"key {quote(key.value)} stands twice, first{where}; remove one")
        elif key.value == "<<":
            self.faults.add(key.place, "merge keys (<<) are not part of YAML 1.2; write the keys out")
        else:
            entries[key.value] = Entry(key.place, value)

    def _alias(self, name: str, place: Place) -> Node:
        if name not in self.anchors:
            return self._refuse(place, f"alias *{name} has no anchor &{name} before it")
        node = self.anchors[name]
        if node is None:
            return self._refuse(place, f"alias *{name} stands inside its own anchor; a value cannot contain itself")
        self.aliased += size(node)
        if self.aliased > MAX_ALIASED and self.bomb is None:
            self.bomb = self._refuse(place, f"aliases repeat more than {MAX_ALIASED} values; write them out")
        return self.bomb or node
