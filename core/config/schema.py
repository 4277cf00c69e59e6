"""JSON Schema of the pipeline file with the options of every installed plugin, for editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmux import plugins
from draftmux.config.grammar import PROTOCOLS, pipeline_fields, plugin_shape
from draftmux.errors import PluginError

if TYPE_CHECKING:
    from draftmux.registry import Registry


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12. Plugins whose class cannot be loaded are left out; a `$comment` names them."""
    registry = plugins.registry()
    definitions: dict[str, Any] = {}
    for kind in PROTOCOLS:
        definitions |= _definitions(kind, registry)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "draftmux pipeline",
        **pipeline_fields(registry).schema(),
        "allOf": [_target_rule(registry), _router_rule()],
        "$defs": definitions,
    }


def _definitions(kind: str, registry: Registry) -> dict[str, Any]:
    """One definition for each plugin of a kind, and one that picks among them by `use`."""
    found: dict[str, Any] = {}
    left_out = []
    for name in registry.names(kind):
        try:
            schema = plugin_shape(registry, kind, name).schema()
        except PluginError:
            left_out.append(name)
            continue
        help = registry.find(kind, name).help
        schema["properties"] = {"use": {"const": name, "description": help}} | schema["properties"]
        found[name] = schema | {"required": ["use", *schema.get("required", [])]}
    rules = [
        {"if": {"properties": {"use": {"const": name}}}, "then": {"$ref": f"#/$defs/{kind}.{name}"}} for name in found
    ]
    choice: dict[str, Any] = {
        "type": "object",
        "required": ["use"],
        "properties": {"use": {"enum": list(found)}},
    } | ({"allOf": rules} if rules else {})
    if left_out:
        choice["$comment"] = f"left out, since they could not be loaded: {', '.join(left_out)}"
    return {kind: choice} | {f"{kind}.{name}": schema for name, schema in found.items()}


def _target_rule(registry: Registry) -> dict[str, Any]:
    """`models.target` is required, but not by backends that bring their own."""
    names = [name for name in registry.names("backend") if not _takes_model(registry, name)]
    scripted = {"properties": {"backend": {"properties": {"use": {"enum": names}}, "required": ["use"]}}}
    target = {"required": ["models"], "properties": {"models": {"required": ["target"]}}}
    return {"if": scripted | {"required": ["backend"]}, "else": target}


def _takes_model(registry: Registry, name: str) -> bool:
    try:
        return bool(registry.find("backend", name).load().takes_model)
    except Exception:  # a plugin's own property may raise anything
        return True


def _router_rule() -> dict[str, Any]:
    several = {"properties": {"drafters": {"minProperties": 2}}, "required": ["drafters"]}
    return {"if": several, "then": {"required": ["router"]}}
