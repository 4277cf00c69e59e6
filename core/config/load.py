"""From a pipeline file to a specification: read, override, fill in defaults, build, relate; then all faults at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmux import plugins
from draftmux.config.describe import Row, describe
from draftmux.config.faults import Faults, Place
from draftmux.config.grammar import Part, pipeline_fields
from draftmux.config.nodes import Entry, Mapping, Node, Scalar, Sequence, quote, show, tree
from draftmux.config.overrides import apply_overrides
from draftmux.config.reader import read
from draftmux.config.relations import Parts, check
from draftmux.config.shapes import INVALID
from draftmux.config.spec import PipelineSpec
from draftmux.errors import ModelError, PipelineError, PluginError, did_you_mean
from draftmux.registry import package_name

if TYPE_CHECKING:
    from draftmux.registry import Registry

__all__ = ["Row", "describe", "parse_pipeline", "read_pipeline", "shipped"]


def read_pipeline(path_or_name: str | Path, overrides: Iterable[str] = ()) -> PipelineSpec:
    """Read a file, or a shipped pipeline by name; PipelineError with every fault. `overrides` are `key.path=value`."""
    name = str(path_or_name)
    if name in shipped() and not os.path.isfile(name):
        text = (files("draftmux.pipelines") / f"{name}.yaml").read_text(encoding="utf-8")
        return parse_pipeline(text, f"{name}.yaml", overrides)
    return parse_pipeline(_text(name), name, overrides)


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = did_you_mean(Path(name).stem, shipped())
        fault = f"no such file, and no shipped pipeline of that name{hint}"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        fault = f"not UTF-8 text at byte {error.start}; save it as UTF-8"
    except ValueError as error:  # a NUL in the name
        fault = f"no possible name of a file: {error}"
    raise PipelineError([f"{name!r}: {fault}" if "\0" in name else f"{name}: {fault}"])


def shipped() -> list[str]:
    """Names of the pipelines that come with draftmux."""
    return sorted(Path(item.name).stem for item in files("draftmux.pipelines").iterdir() if item.name.endswith(".yaml"))


def parse_pipeline(text: str, origin: str, overrides: Iterable[str] = ()) -> PipelineSpec:
    """Read the text of a pipeline file; PipelineError with every fault. `origin` names the file in messages."""
    faults = Faults()
    root = read(text, origin, faults)
    if root is not None and not isinstance(root, Mapping):
        faults.add(root.place, f"the top level must be a mapping of keys such as drafters, not {show(root)}")
    if not isinstance(root, Mapping):
        raise PipelineError(faults.sentences())
    root = apply_overrides(root, overrides, faults)
    registry = _usable(root, faults)
    root = _with_defaults(root, origin, registry, faults)
    values = pipeline_fields(registry).build(Entry(root.place, root), "", faults)
    parts = _parts(root, values)
    check(parts, faults)
    if values.get("plugins") is not None:
        _name_models(root, values, registry, faults)
    faults.raise_any()
    plugin_specs = {name: part.spec for name, part in values.items() if isinstance(part, Part)}
    values |= plugin_specs | {"drafters": {name: part.spec for name, part in parts.drafters.items()}}
    with faults.catching(root.place, ""):
        return PipelineSpec(origin=origin, **{"models": {}} | values)
    raise PipelineError(faults.sentences())


def _usable(root: Mapping, faults: Faults) -> Registry:
    """The plugins that the file may use: any, or those of the packages that it lists. Imports no others."""
    node = _below(root, "plugins")
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return plugins.registry()
    items = node.items if isinstance(node, Sequence) else ()  # what else it may be is a fault, told with its type
    listed = {item.value: item.place for item in items if isinstance(item, Scalar) and isinstance(item.value, str)}
    registry = plugins.registry(listed)
    known = {package_name(name) for name in registry.packages()}
    for name, place in listed.items():
        if package_name(name) not in known:
            hint = did_you_mean(package_name(name), known)
            message = f"plugins lists {quote(name)}, but no installed package of that name publishes plugins{hint}"
            faults.add(place, message)
    return registry


def _name_models(root: Mapping, values: dict[str, Any], registry: Registry, faults: Faults) -> None:
    """Put what published names stand for in their place: whoever loads the models later does not know the list."""
    from draftmux.models.locate import is_name, published

    models = values.get("models", INVALID)
    for name, spec in models.items() if models is not INVALID else ():
        if spec is INVALID:
            continue
        try:
            if is_name(spec.source):
                models[name] = published(spec, registry)
        except ModelError:  # a path that leads nowhere, which is told when the model is loaded
            continue
        except PluginError as error:
            faults.add(_place(root, "models", name, "source"), str(error))


def _place(node: Node, *keys: str) -> Place:
    """Where the value stands that these keys lead to."""
    for key in keys:
        assert isinstance(node, Mapping)
        node = node.entries[key].node
    return node.place


def _with_defaults(root: Mapping, origin: str, registry: Registry, faults: Faults) -> Mapping:
    """The file with the plugins that it leaves out. These stand in no line."""
    defaults: dict[str, Any] = {"verifier": {"use": "exact-match"}, "backend": {"use": "static"}}
    drafters = sorted(_names(root, "drafters") or ())
    if len(drafters) < 2:
        defaults["router"] = {"use": "fixed", "drafter": drafters[0] if drafters else None}
    elif "router" not in root.entries:
        known = ", ".join(registry.names("router"))
        message = f"several drafters ({', '.join(drafters)}) and no router; name a router: {known}"
        faults.add(root.entries["drafters"].place, message)
    for name, default in defaults.items():
        if name not in root.entries:
            place = Place(origin)
            root = root.having(name, Entry(place, tree(default, place)))
    return root


def _parts(root: Mapping, values: dict[str, Any]) -> Parts:
    def part(name: str) -> Part | None:
        return values[name] if isinstance(values.get(name), Part) else None

    drafters = values.get("drafters", {})
    return Parts(
        place=root.entries["models"].place if "models" in root.entries else root.place,
        model_names=_names(root, "models"),
        drafter_names=_names(root, "drafters"),
        backend=part("backend"),
        drafters={}
        if drafters is INVALID
        else {name: found for name, found in drafters.items() if found is not INVALID},
        router=part("router"),
        verifier=part("verifier"),
        lossless=values.get("lossless", True) is True,
    )


def _names(root: Mapping, section: str) -> set[str] | None:
    """Keys of a section, whether or not what stands below them is right; None if the section is no mapping."""
    node = _below(root, section)
    if isinstance(node, Mapping):
        return {name for name in node.entries if isinstance(name, str)}
    return set() if node is None else None


def _below(mapping: Mapping, key: str) -> Node | None:
    entry = mapping.entries.get(key)
    return None if entry is None else entry.node
