"""The drafters that come with draftmux; published through the same hook as a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_drafters(register: Register) -> None:
    """Publish the built-in drafters."""
    register("pld", "draftmux.drafters.ngram.pld:PromptLookup", "prompt lookup: continue the latest n-gram match")
    register(
        "copyspec", "draftmux.drafters.ngram.copyspec:CopySpec", "copy after the first match of the last gamma tokens"
    )
    register(
        "context-copy", "draftmux.drafters.ngram.context_copy:ContextCopy", "several recent continuations as one tree"
    )
    register("sps", "draftmux.drafters.sps.drafter:Sps", "a smaller language model, or the target's first layers")
    register("eagle3", "draftmux.drafters.eagle3.drafter:Eagle3", "a head that reads the target's hidden states")
    register("merge", "draftmux.drafters.merge:Merge", "one tree out of several drafters' drafts")
