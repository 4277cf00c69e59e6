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
    register("scripted", "draftmux.backends.scripted:ScriptedBackend", "logit tables and functions, for tests")
