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
    register("linear-probe", "draftmux.routers.linear_probe.router:LinearProbe", "SwitchSD: copy where a probe says so")
    register("bandit", "draftmux.routers.bandit.router:Bandit", "learns which drafter commits most tokens a second")
    register(
        "cost-aware", "draftmux.routers.cost_aware.router:CostAware", "the drafter and size that pay most, or none"
    )
    register(
        "accepted-length",
        "draftmux.routers.accepted_length.router:AcceptedLength",
        "copy where a regressor expects enough of it to be accepted",
    )
