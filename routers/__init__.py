"""The routers that come with draftmux; published through the same hook as a stranger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_routers(register: Register) -> None:
    """Publish the built-in routers."""
    register("fixed", "draftmux.routers.fixed:Fixed", "always the same drafter")
    register("cascade", "draftmux.routers.cascade:Cascade", "the first drafter, in order, that has a draft")
    register(
        "match-length", "draftmux.routers.match_length:MatchLength", "copy if the match is long enough, else the other"
    )
