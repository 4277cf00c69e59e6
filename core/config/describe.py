"""What a specification resolves to, as rows for `check`. Loads no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from draftmux import plugins
from draftmux.config.classes import option_fields

if TYPE_CHECKING:
    from draftmux.config.spec import PipelineSpec, PluginSpec
    from draftmux.registry import Registry


class Row(NamedTuple):
    """One resolved part of a pipeline.

    `part` is model, drafter, router, verifier, backend, generation, lossless or on_plugin_error; `name` the key in the
    file, if it has one; `value` the plugin's name, the model's source or the setting; `package` who published the
    plugin, with its version; `options` everything in force, defaults too, as JSON would write it.
    """

    part: str
    name: str
    value: str
    package: str = ""
    options: dict[str, Any] | None = None


def describe(spec: PipelineSpec) -> list[Row]:
    """Everything that a pipeline resolves to."""
    known = plugins.registry(spec.plugins)
    rows = [Row("model", name, model.source, options=_options(model, known)) for name, model in spec.models.items()]
    rows += [_plugin("drafter", drafter, known) for drafter in spec.drafters.values()]
    rows += [_plugin(kind, getattr(spec, kind), known) for kind in ("router", "verifier", "backend")]
    way = "greedy" if spec.generation.greedy else "sampled"
    rows.append(Row("generation", "", way, options=generation_settings(spec)))
    rows.append(Row("lossless", "", _lossless(spec.verifier.plugin)))
    rows.append(Row("on_plugin_error", "", spec.on_plugin_error))
    return rows


def generation_settings(spec: PipelineSpec) -> dict[str, Any]:
    """How a pipeline generates, as a file would write it."""
    return _options(spec.generation, plugins.registry(spec.plugins))


def _plugin(kind: str, plugin: PluginSpec, known: Registry) -> Row:
    entry = known.find(kind, plugin.use)
    name = plugin.name if kind == "drafter" else ""
    return Row(kind, name, plugin.use, f"{entry.package} {entry.version}", _options(plugin.plugin, known))


def _lossless(verifier: Any) -> str:
    if not verifier.lossless:
        return "no: the text may differ from the target's"
    return "yes" if verifier.pathwise else "yes; sampled, in law: a seed's text may differ from plain decoding's"


def _options(plugin: Any, known: Registry) -> dict[str, Any]:
    return {o.name: _written(o, getattr(plugin, o.name), known) for o in option_fields(type(plugin))}


def _written(option: attrs.Attribute[Any], value: Any, known: Registry) -> Any:
    """The value, or the word that stands for it."""
    words: dict[str, Any] = option.metadata.get("words") or {}
    return next((word for word, meaning in words.items() if meaning == value), _plain(value, known))


def _plain(value: Any, known: Registry) -> Any:
    """As a file would write it; a plugin within another one, or within settings, with its name."""
    if isinstance(value, Mapping):
        return {key: _plain(found, known) for key, found in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(found, known) for found in value]
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    target = f"{type(value).__module__}:{type(value).__qualname__}"
    names = [entry.name for entry in known if entry.target == target] or [target] * hasattr(value, "begin")
    if names or (attrs.has(type(value)) and not hasattr(value, "parse")):
        return ({"use": names[0]} if names else {}) | (_options(value, known) if attrs.has(type(value)) else {})
    return str(value)
