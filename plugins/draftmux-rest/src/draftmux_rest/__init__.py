"""REST (arXiv 2311.08252): drafts that are retrieved from a datastore over the user's own files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_drafters(register: Register) -> None:
    """Publish the drafter."""
    register(
        "rest", "draftmux_rest.drafter:Rest", "retrieve what followed the last tokens in a datastore of your files"
    )
