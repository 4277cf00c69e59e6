"""Where a backend hooks in: it hands over how its target is built, and gets what its `bind` returns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn, TypeVar

from draftmux.backends.parallel.ranks import launched
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftmux.backends.parallel.ranks import Ranks
    from draftmux.protocols import BoundBackend

Built = TypeVar("Built", bound="BoundBackend")


def wrap(build: Callable[[int], Built]) -> Built | BoundBackend:
    """Call `build` with the number of processes that share the target, and return what the engine is to use.

    Alone, that is what was built. Under torchrun rank 0 gets a backend that leads; on other ranks this call follows it
    and ends the process. What `build` runs must be the same on all ranks. Raises what `build` raises, and ModelError.
    """
    ranks = launched()
    return build(1) if ranks is None else _share(build, ranks)


def refuse_several(backend: str) -> None:
    """For a backend that does not call `wrap`: ModelError under torchrun, where every process would do the same."""
    if (ranks := launched()) is not None:
        raise ModelError(
            f"the {backend} backend runs in one process, and {ranks.size} were started; use "
            f"`backend: {{use: static}}`, or start a single process"
        )


def _share(build: Callable[[int], BoundBackend], ranks: Ranks) -> BoundBackend:
    from draftmux.backends.parallel.follower import follow
    from draftmux.backends.parallel.group import Group
    from draftmux.backends.parallel.leader import Leader

    try:
        group = Group.join(ranks)
    except ModelError as error:
        if not ranks.leads:
            _say(error, ranks)
        raise
    try:
        target = build(ranks.size)
    except BaseException as error:
        if not ranks.leads:
            group.give_up(error)
        group.note(error)
        raise
    return Leader.over(target, group) if ranks.leads else follow(group, target)


def _say(error: ModelError, ranks: Ranks) -> NoReturn:
    """There is no group yet in which one could speak for all."""
    print(f"Error: {ranks}: {error}", file=sys.__stderr__, flush=True)
    raise SystemExit(1)
