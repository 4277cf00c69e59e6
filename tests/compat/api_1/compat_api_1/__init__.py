"""A package of plugins for plugin API 1, as a stranger may have published it.

Written once, and never edited again: it stands for the packages out there, which nobody edits when draftmux changes.
When it stops working, draftmux broke them. Then either undo that, or raise `PLUGIN_API` and record a package for the
new number beside this one; this one goes when `OLDEST_PLUGIN_API` passes 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register

draftmux_api = 1


@hookimpl
def register_drafters(register: Register) -> None:
    """Three drafters: by each of the base classes, and by none."""
    register("compat-copy", "compat_api_1.drafters:Copy", "what came after the last token before")
    register("compat-memory", "compat_api_1.drafters:Memory", "what usually comes after a token in this text")
    register("compat-drawn", "compat_api_1.drafters:Drawn", help="a tree of tokens with the law they were drawn from")


@hookimpl
def register_routers(register: Register) -> None:
    """A router with state."""
    register("compat-turns", "compat_api_1.router:Turns", "every drafter in turn")


@hookimpl
def register_verifiers(register: Register) -> None:
    """A verifier without a base class."""
    register("compat-walk", "compat_api_1.verifier:Walk", "follow the target's own picks")


@hookimpl
def register_models(register: Register) -> None:
    """The name of a model."""
    register("compat-model", "compat_api_1.models:COMPAT")
