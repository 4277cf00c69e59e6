"""The backends that come with draftmux; published through the same hook as a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_backends(register: Register) -> None:
    """Publish the built-in backends."""
    register("transformers", "draftmux.backends.transformers.backend:TransformersBackend", "any causal LM, any device")
    register("static", "draftmux.backends.static.backend:StaticBackend", "static KV, packed weights; CPU or any GPU")
    register("h100", "draftmux.backends.h100.backend:H100Backend", "CUDA graphs and a tree kernel; H100 and newer")
    register("scripted", "draftmux.backends.scripted:ScriptedBackend", "logit tables and functions, for tests")
