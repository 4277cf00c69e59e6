"""A pipeline file as data, after reading and before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from draftmux.generation import Generation
from draftmux.options import option

if TYPE_CHECKING:
    from draftmux.models.source import ModelSpec


@frozen
class PluginSpec:
    """One plugin of the file: the name after `use`, and its options, already built into the plugin's own class.

    `name` is the key in the file (`copy`, `router`, …); `options` what the file says, as plain data; `line` where it
    stands, for messages.
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
    models: dict[str, ModelSpec] = field(
        metadata={"help": "models by name; `target` is the one whose text comes out, others serve drafters"}
    )
    drafters: dict[str, PluginSpec] = field(metadata={"help": "drafters by name; none decodes plainly"})
    router: PluginSpec = field(
        metadata={"help": "decides at every step which drafter drafts; with one drafter it may be left out"}
    )
    verifier: PluginSpec = field(metadata={"help": "decides which drafted tokens stand; exact-match if left out"})
    backend: PluginSpec = field(metadata={"help": "runs the target model; transformers if left out"})
    generation: Generation = field(
        factory=Generation, metadata={"help": "defaults of a request: length, stopping, sampling"}
    )
    lossless: bool = field(
        default=True, metadata={"help": "must be false if the verifier is lossy, so that nobody runs one unawares"}
    )
    on_plugin_error: Literal["raise", "skip"] = field(
        default="raise",
        metadata={
            "help": "what a failing plugin does: end the request, or go without its draft where that is lossless"
        },
    )
    plugins: list[str] | None = field(
        default=None,
        metadata={"help": "packages whose plugins this file may use, besides draftmux itself; any if left out"},
    )
    max_batch: int = option("requests that run at once; others wait", default=8, minimum=1)
    description: str = field(default="", metadata={"help": "what the pipeline is for, in a line"})
