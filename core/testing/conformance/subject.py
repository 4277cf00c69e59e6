"""The plugin under test: built as a pipeline file would build it, and bound anew as often as a check wants.

Knows registry, options and resources; nothing of any check.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field, frozen

from draftmux.config.faults import Faults, Place
from draftmux.config.grammar import PROTOCOLS, own_shape, plugin_shape
from draftmux.config.nodes import Entry, tree
from draftmux.errors import ModelError, PluginError
from draftmux.plugins import registry
from draftmux.protocols import Resources
from draftmux.testing.conformance.backends import saved_model
from draftmux.testing.conformance.scenes import Scene, scene_of, scenes, small_tokenizer
from draftmux.testing.drafters import RandomTree
from draftmux.types import Tap

if TYPE_CHECKING:
    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend, Drafter

MakeTarget = Callable[[tuple[Tap, ...]], Any]


@frozen(eq=False)
class Setting:
    """What a plugin finds around it where the kit's own will not do.

    `models`: what `needs.models` names (for a backend, the `target` to load). `drafters`: what `uses` names. `target`
    makes a bound backend with the given taps. Without them the kit takes a tiny Llama for every model, random trees for
    every drafter, and targets of 40 tokens.
    """

    models: Mapping[str, ModelSpec] = field(factory=dict)
    drafters: Mapping[str, Drafter] = field(factory=dict)
    target: MakeTarget | None = None


def build(kind: str, plugin: Any, options: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and unbound plugin: of a registered name or of a class with `options`, or an instance as it is.

    PluginError for an unknown name, and for options that a pipeline file could not hold.
    """
    if not isinstance(plugin, (str, type)):
        if options:
            raise PluginError(f"options ({', '.join(options)}) need a name or a class; this {kind} is built already")
        return type(plugin).__name__, plugin
    name = plugin if isinstance(plugin, str) else plugin.__name__
    shape = plugin_shape(registry(), kind, plugin) if isinstance(plugin, str) else own_shape(plugin, registry())
    faults, place = Faults(), Place(f"{kind} '{name}'")
    built = shape.build(Entry(place, tree(_plain(options), place)), "", faults)
    if len(faults):
        raise PluginError("; ".join(faults.sentences()))
    return name, built


def _plain(value: Any) -> Any:
    """Options as a file would hold them."""
    if isinstance(value, Mapping):
        return {key: _plain(found) for key, found in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(found) for found in value]
    if isinstance(value, Tap):
        return str(value)
    return _plain(attrs.asdict(value, recurse=False)) if attrs.has(type(value)) else value


@frozen(eq=False)
class Subject:
    """A plugin under test. `kind` is one of the protocols' names."""

    kind: str
    name: str
    plugin: Any
    setting: Setting
    kept: dict[Any, Any] = field(factory=dict)  # what checks share: scenes, transcripts, bound plugins

    @property
    def protocol(self) -> type:
        """What the plugin must have."""
        return PROTOCOLS[self.kind]

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made at most once."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    @property
    def scenes(self) -> list[Scene]:
        """Targets to decode with, tapped as the plugin needs it."""
        found: list[Scene] = self.once("scenes", self._scenes)
        return found

    def _scenes(self) -> list[Scene]:
        needs = getattr(self.plugin, "needs", None)
        taps = tuple(needs.taps) if needs is not None else ()
        if self.setting.target is not None:
            return [scene_of(self.setting.target(taps))]
        try:
            return scenes(taps)
        except ModelError as error:
            raise ModelError(f"{error}; give the kit a target that has it: setting=Setting(target=…)") from error

    def fresh(self) -> Any:
        """A copy that has seen nothing yet, for checks of what one sequence leaves behind."""
        try:
            return copy.deepcopy(self.plugin)
        except Exception:  # holds something that cannot be copied; then faults of shared state may hide
            return self.plugin

    def bind(self, target: BoundBackend, wrap: Callable[[str, Any], Any] = lambda _, found: found) -> Any:
        """A bound fresh copy, given no more than it declares. `wrap` may replace the mappings of its resources."""
        resources = Resources(
            target.tokenizer or small_tokenizer(),
            target,
            wrap("models", self._models()),
            wrap("drafters", self.drafters(target)),
        )
        return self.fresh().bind(resources)

    def _models(self) -> dict[str, ModelSpec]:
        """The models it names; the kit's own is a tiny Llama with the vocabulary of the kit's targets."""
        needs = getattr(self.plugin, "needs", None)
        wanted = needs.models if needs is not None else ()
        return {name: self.setting.models.get(name) or saved_model() for name in wanted}

    def drafters(self, target: BoundBackend) -> dict[str, Drafter]:
        """Bound drafters by the names that the plugin uses; the kit's own are random trees."""
        names = self.plugin.uses() if hasattr(self.plugin, "uses") else ()
        return self.named(("one", "two", "three") if names is None else names, target)

    def named(self, names: tuple[str, ...], target: BoundBackend) -> dict[str, Drafter]:
        """Bound drafters by these names."""
        return {
            name: self.setting.drafters.get(name) or RandomTree(target.vocab_size, nodes=3 + number, seed=number)
            for number, name in enumerate(names)
        }
