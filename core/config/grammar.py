"""Which key of a pipeline file holds what. Loads the classes of the plugins that the file names, and no others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from draftmux import protocols
from draftmux.config.classes import Class, Fields, Option, class_shape, field_option
from draftmux.config.nodes import Entry, Mapping, Node, plain
from draftmux.config.shapes import INVALID, TEXT, Shape, Table
from draftmux.config.spec import PipelineSpec, PluginSpec
from draftmux.errors import PluginError
from draftmux.generation import Generation
from draftmux.models.source import ModelSpec

if TYPE_CHECKING:
    from draftmux.config.faults import Faults
    from draftmux.registry import Registry

PROTOCOLS: dict[str, type] = {
    "drafter": protocols.Drafter,
    "router": protocols.Router,
    "verifier": protocols.Verifier,
    "backend": protocols.Backend,
    "constraint": protocols.Constraint,
}


@attrs.frozen(eq=False)
class Part:
    """A plugin of the file that was built; `path` names it in messages, `entry` is where it stands."""

    path: str
    spec: PluginSpec
    entry: Entry


@attrs.frozen
class PluginShape(Shape):
    """A mapping `{use: NAME, …}` with the options of that plugin; builds a Part."""

    kind: str
    registry: Registry

    @property
    def wanted(self) -> str:
        return f"a mapping such as {{use: {next(iter(self.registry.names(self.kind)), 'NAME')}}}"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Mapping)

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        assert isinstance(entry.node, Mapping)
        use = self._use(entry, path, faults)
        if use is INVALID:
            return INVALID
        place = entry.node.entries["use"].node.place
        options = entry.node.without("use")
        try:
            plugin = plugin_shape(self.registry, self.kind, use).build(Entry(entry.place, options), path, faults)
        except PluginError as error:
            faults.add(place, str(error))
            return INVALID
        if plugin is INVALID:
            return INVALID
        if missing := protocols.lacking(plugin, PROTOCOLS[self.kind]):
            faults.add(place, f"{self.kind} '{use}' breaks the {self.kind} protocol: it lacks {', '.join(missing)}")
            return INVALID
        name = path.removeprefix("drafters.")
        return Part(path, PluginSpec(name, use, plugin, plain(options), entry.place.line), entry)

    def _use(self, entry: Entry, path: str, faults: Faults) -> Any:
        assert isinstance(entry.node, Mapping)
        if "use" in entry.node.entries:
            return TEXT.build(entry.node.entries["use"], f"{path}.use", faults)
        known = ", ".join(self.registry.names(self.kind))
        faults.add(entry.place, f"{path} lacks the key 'use', which names a {self.kind}; there is {known or 'none'}")
        return INVALID

    def schema(self) -> dict[str, Any]:
        return {"$ref": f"#/$defs/{self.kind}"}


@attrs.frozen
class InnerShape(PluginShape):
    """A plugin that another one, or a request, holds: it alone, since what it was called in the file is no matter."""

    def make(self, entry: Entry, path: str, faults: Faults) -> Any:
        part = super().make(entry, path, faults)
        return part.spec.plugin if isinstance(part, Part) else part


def pipeline_fields(registry: Registry) -> Fields:
    """The top level of a pipeline file."""
    kinds: dict[str, Shape] = {kind: PluginShape(kind, registry) for kind in PROTOCOLS if kind != "constraint"}
    kinds["drafters"] = Table(TEXT, kinds.pop("drafter"))
    kinds["generation"] = generation_shape(registry)
    kinds["models"] = Table(TEXT, class_shape(ModelSpec))
    options = {}
    for attribute in attrs.fields(PipelineSpec):
        if attribute.name in kinds:
            options[attribute.name] = Option(kinds[attribute.name], notes={"description": attribute.metadata["help"]})
        elif attribute.name != "origin":
            options[attribute.name] = field_option(PipelineSpec, attribute.name)
    return Fields(options)


def generation_shape(registry: Registry) -> Class:
    """The settings of a request."""
    return own_shape(Generation, registry)


def own_shape(cls: type, registry: Registry) -> Class:
    """The options of a class, with plugins of the registry wherever it may hold some; PluginError if files cannot."""
    return class_shape(cls).filled(partial(InnerShape, registry=registry))


def plugin_shape(registry: Registry, kind: str, name: str) -> Class:
    """The options of a plugin; PluginError when it is unknown, cannot be imported, or cannot be read from files."""
    found = registry.find(kind, name)
    cls = found.load()
    try:
        return own_shape(cls, registry)
    except PluginError as error:
        raise PluginError(f"{kind} '{name}' of package {found.package} {found.version} is unusable: {error}") from error
