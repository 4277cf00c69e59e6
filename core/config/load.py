"""From a pipeline file to a specification: read, override, fill in defaults, build, relate; then all faults at once."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmux import plugins
from draftmux.config.describe import Row, describe
from draftmux.config.faults import Faults, Place
from draftmux.config.grammar import Part, pipeline_fields
from draftmux.config.nodes import Entry, Mapping, Node, show, tree
from draftmux.config.overrides import apply_overrides
from draftmux.config.reader import read
from draftmux.config.relations import Parts, check
from draftmux.config.shapes import INVALID
from draftmux.config.spec import PipelineSpec
from draftmux.errors import PipelineError, did_you_mean

if TYPE_CHECKING:
    from draftmux.registry import Registry

__all__ = ["Row", "describe", "parse_pipeline", "read_pipeline", "shipped"]


def read_pipeline(path_or_name: str | Path, overrides: Iterable[str] = ()) -> PipelineSpec:
    """Read a file, or a shipped pipeline by name; PipelineError with every fault. `overrides` are `key.path=value`."""
    name = str(path_or_name)
    path = Path(path_or_name)
    if not path.is_file() and name in shipped():
        text = (files("draftmux.pipelines") / f"{name}.yaml").read_text(encoding="utf-8")
        return parse_pipeline(text, f"{name}.yaml", overrides)
    try:
        return parse_pipeline(path.read_text(encoding="utf-8"), name, overrides)
    except FileNotFoundError:
        hint = did_you_mean(path.stem, shipped())
        raise PipelineError([f"{name}: no such file, and no shipped pipeline of that name{hint}"]) from None
    except OSError as error:
        raise PipelineError([f"{name}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise PipelineError([f"{name}: not UTF-8 text at byte {error.start}; save it as UTF-8"]) from None


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
    registry = plugins.registry()
    root = _with_defaults(apply_overrides(root, overrides, faults), origin, registry, faults)
    values = pipeline_fields(registry).build(Entry(root.place, root), "", faults)
    parts = _parts(root, values)
    check(parts, faults)
    faults.raise_any()
    plugin_specs = {name: part.spec for name, part in values.items() if isinstance(part, Part)}
    values |= plugin_specs | {"drafters": {name: part.spec for name, part in parts.drafters.items()}}
    return PipelineSpec(origin=origin, **{"models": {}} | values)


def _with_defaults(root: Mapping, origin: str, registry: Registry, faults: Faults) -> Mapping:
    """The file with the plugins that it leaves out. These stand in no line."""
    defaults: dict[str, Any] = {"verifier": {"use": "exact-match"}, "backend": {"use": "transformers"}}
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
