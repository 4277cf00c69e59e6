"""The constraints that come with draftmux; published through the same hook as a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_constraints(register: Register) -> None:
    """Publish the built-in constraints."""
    register("json-schema", "draftmux.constraints.grammar:JsonSchema", "text is JSON that a schema describes")
    register("regex", "draftmux.constraints.grammar:Regex", "the whole text matches a regular expression")
    register("lark", "draftmux.constraints.grammar:Lark", "text is what a context-free grammar derives")
