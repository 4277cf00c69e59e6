"""The tasks that come with draftmux: they say whether an answer solves its problem. Published like a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_tasks(register: Register) -> None:
    """Publish the built-in tasks."""
    register(
        "exact-number", "draftmux.tasks.exact:ExactNumber", "the last number, or the boxed one, is the reference's"
    )
    register("exact-string", "draftmux.tasks.exact:ExactString", "the last line is the reference")
    register("unit-tests", "draftmux.tasks.unit_tests:UnitTests", "the code passes the reference's tests, in a process")
