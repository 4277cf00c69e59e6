"""A pipeline file as data, after reading and before anything is loaded."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

from draftmux.generation import Generation
from draftmux.models.source import ModelSpec


@frozen
class PluginSpec:
    """One plugin of the file: the name after `use`, and its options, already built into the plugin's own class.

    `name` is the key in the file (`copy`, `router`, …); `line` where it stands, for messages.
    """

    name: str
    use: str
    plugin: Any
    options: dict[str, Any]
    line: int | None = None


@frozen
class PipelineSpec:
    """Everything a pipeline file says. `origin` is the file's name in messages."""

    origin: str
    models: dict[str, ModelSpec]
    drafters: dict[str, PluginSpec]
    router: PluginSpec
    verifier: PluginSpec
    backend: PluginSpec
    generation: Generation = field(factory=Generation)
    lossless: bool = True
    on_plugin_error: Literal["raise", "skip"] = "raise"
    description: str = ""
