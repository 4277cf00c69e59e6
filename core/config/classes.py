"""attrs classes as shapes: fields are options, metadata their help, validators their rules. All faults at once."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import types
from collections import abc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from draftmux.config.faults import Faults, Place
from draftmux.config.nodes import Entry, Mapping, Node, quote
from draftmux.config.shapes import (
    BOOLEAN,
    INTEGER,
    INVALID,
    NULL,
    TEXT,
    Anything,
    Choice,
    Either,
    Items,
    Number,
    Parsed,
    Plug,
    Shape,
    Table,
    Worded,
)
from draftmux.errors import PluginError, did_you_mean, from_outside, said
from draftmux.protocols import Constraint, Router

_SCALARS: dict[Any, Shape] = {
    str: TEXT,
    int: INTEGER,
    bool: BOOLEAN,
    float: Number(),
    type(None): NULL,
    Any: Anything(),
    Path: Parsed(Path),
    Constraint: Plug("constraint"),
    Router: Plug("router"),
}


@attrs.frozen
class Option:
    """One key of a mapping."""

    shape: Shape
    required: bool = False
    notes: dict[str, Any] = attrs.field(factory=dict)  # help, bounds and default, for JSON Schema


@attrs.frozen
class Fields(Shape):
    """A mapping with known keys; builds a dict of those that are given."""

    options: dict[str, Option]
    wanted: str = "a mapping"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping)

    def make(self, entry: Entry, path: str, faults: Faults) -> dict[str, Any]:
        assert isinstance(entry.node, Mapping)
        prefix = f"{path}." if path else ""
        given = {}
        for name, found in entry.node.entries.items():
            if isinstance(name, str) and name in self.options:
                given[name] = self.options[name].shape.build(found, prefix + name, faults)
            else:
                self._unknown(found.place, str(name), path, faults)
        for name, option in self.options.items():
            if option.required and name not in given:
                faults.add(entry.place, f"{path or 'the file'} lacks the key '{name}'")
        return given

    def _unknown(self, place: Place, name: str, path: str, faults: Faults) -> None:
        where = f" in {path}" if path else ""
        faults.add(place, f"unknown key {quote(name)}{where}{did_you_mean(name, self.options)}")

    def schema(self) -> dict[str, Any]:
        properties = {name: option.shape.schema() | option.notes for name, option in self.options.items()}
        required = [name for name, option in self.options.items() if option.required]
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": required} if required else {})

    def filled(self, plug: Callable[[str], Shape]) -> Fields:
        filled = {n: attrs.evolve(option, shape=option.shape.filled(plug)) for n, option in self.options.items()}
        return attrs.evolve(self, options=filled)


@attrs.frozen
class Class(Shape):
    """A mapping that becomes an object of an attrs class."""

    type: type
    fields: Fields
    wanted: str = "a mapping"

    def fits(self, node: Node) -> bool:
        return self.fields.fits(node)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        before = len(faults)
        given = self.fields.make(entry, path, faults)
        self._validate(given, entry, path, faults)
        if len(faults) > before:
            return INVALID
        with faults.catching(entry.place, path):  # a plugin's own checks may raise anything
            return self.type(**{_alias(self.type, name): value for name, value in given.items()})
        return INVALID

    def _validate(self, given: dict[str, Any], entry: Entry, path: str, faults: Faults) -> None:
        """Run each field's validator by itself, since the class would stop at the first fault."""
        assert isinstance(entry.node, Mapping)
        instance = _unchecked(self.type, given)
        for attribute in option_fields(self.type):
            known = given.get(attribute.name, INVALID) is not INVALID
            if not known or attribute.validator is None or attribute.converter is not None:
                continue
            place = entry.node.entries[attribute.name].node.place
            # It may look at another field, which is wrong or missing; if not, the class itself tells.
            with faults.catching(place, path), contextlib.suppress(AttributeError):
                attribute.validator(instance, attribute, given[attribute.name])

    def schema(self) -> dict[str, Any]:
        return self.fields.schema()

    def filled(self, plug: Callable[[str], Shape]) -> Class:
        return attrs.evolve(self, fields=self.fields.filled(plug))


def shape_of(type_: Any) -> Shape:
    """The shape of a type annotation; PluginError when files cannot hold such a type."""
    origin, arguments = get_origin(type_) or type_, get_args(type_)
    if origin is Literal:
        kinds = dict.fromkeys(type(value) for value in arguments)
        return Choice(Either(tuple(map(shape_of, kinds))), arguments)
    if isinstance(type_, abc.Hashable) and type_ in _SCALARS:
        return _SCALARS[type_]
    if origin in (Union, types.UnionType):
        return Either(tuple(map(shape_of, arguments)))
    return _container(origin, arguments) or _class(type_)


def _container(origin: Any, arguments: tuple[Any, ...]) -> Shape | None:
    if origin in (list, abc.Sequence):
        return Items(shape_of(arguments[0] if arguments else Any))
    if origin is tuple and arguments[1:] == (...,):
        return Items(shape_of(arguments[0]), collect=tuple)
    if origin in (dict, abc.Mapping):
        key, value = arguments or (str, Any)
        return Table(shape_of(key), shape_of(value))
    return None


def class_shape(cls: Any) -> Class:
    """The shape of an attrs class; PluginError when it is none, is abstract, or has a field that no file can hold."""
    if not (isinstance(cls, type) and attrs.has(cls)):
        raise PluginError(f"{cls!r} is not an attrs class; decorate it with attrs.frozen or attrs.define")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise PluginError(f"class {cls.__qualname__} is abstract; it still lacks {missing}")
    return Class(cls, Fields({attribute.name: field_option(cls, attribute.name) for attribute in option_fields(cls)}))


def _class(type_: Any) -> Shape:
    if callable(parse := getattr(type_, "parse", None)):
        return Parsed(parse)
    if isinstance(type_, type) and attrs.has(type_):
        return class_shape(type_)
    raise PluginError(
        f"a pipeline file cannot hold a {type_}; use bool, int, float, str, Literal, list, dict, an attrs class, "
        "or a class with a classmethod parse(text)"
    )


def option_fields(cls: type) -> list[attrs.Attribute[Any]]:
    """The fields of an attrs class that files may set."""
    return [attribute for attribute in attrs.fields(cls) if attribute.init and not attribute.name.startswith("_")]


def field_option(cls: type, name: str) -> Option:
    """One field as an option; PluginError when files cannot hold its type."""
    attribute: attrs.Attribute[Any] = attrs.fields_dict(cls)[name]
    try:
        shape = shape_of(_annotation(cls, attribute))
    except BaseException as error:  # an annotation of a plugin may raise anything
        if from_outside(error):
            raise
        raise PluginError(f"option '{name}' of class {cls.__qualname__}: {said(error)}") from error
    if choices := attribute.metadata.get("choices"):
        shape = Choice(shape, tuple(choices))
    if words := attribute.metadata.get("words"):
        shape = Worded(shape, dict(words))
    return Option(shape, attribute.default is attrs.NOTHING, _notes(attribute))


def _annotation(cls: type, attribute: attrs.Attribute[Any]) -> Any:
    """The field's type. Resolved one by one, since private fields may name what is imported for typing only."""
    owner = next((base for base in cls.__mro__ if attribute.name in inspect.get_annotations(base)), cls)
    module = sys.modules.get(owner.__module__)
    holder = types.SimpleNamespace(__annotations__={attribute.name: attribute.type or Any})
    return get_type_hints(holder, globalns=getattr(module, "__dict__", {}), localns=dict(vars(owner)))[attribute.name]


def _notes(attribute: attrs.Attribute[Any]) -> dict[str, Any]:
    names = {"help": "description", "minimum": "minimum", "maximum": "maximum"}
    found = {key: attribute.metadata.get(name) for name, key in names.items()}
    notes = {key: value for key, value in found.items() if value is not None}
    with Faults().catching(Place(""), ""):  # a default that fails, or that JSON cannot write, is left out
        default = _default(attribute, None)
        json.dumps(default, allow_nan=False)
        notes["default"] = default
    return notes


def _default(attribute: attrs.Attribute[Any], instance: Any) -> Any:
    default: Any = attribute.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return default.factory(instance) if default.takes_self else default.factory()
    return default


def _alias(cls: type, name: str) -> str:
    return str(getattr(attrs.fields_dict(cls)[name], "alias", None) or name)


def _unchecked(cls: type, given: dict[str, Any]) -> Any:
    """An instance whose validators and `__attrs_post_init__` have not run; fields with faults stay unset."""
    instance: Any = object.__new__(cls)
    for attribute in attrs.fields(cls):
        with Faults().catching(Place(""), ""):  # a default that fails shows when the class itself is built
            value = given[attribute.name] if attribute.name in given else _default(attribute, instance)
            if value is not INVALID and value is not attrs.NOTHING:
                object.__setattr__(instance, attribute.name, value)
    return instance
