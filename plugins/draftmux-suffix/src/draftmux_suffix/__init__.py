"""Publishes the drafter `suffix`. Knows nothing of how it drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_drafters(register: Register) -> None:
    """Publish SuffixDecoding."""
    register(
        "suffix",
        "draftmux_suffix.drafter:SuffixDecoding",
        "what most often followed the end of the text, with a score (SuffixDecoding)",
    )
