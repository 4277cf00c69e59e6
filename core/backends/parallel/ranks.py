"""Which of several processes this one is, by what the launcher put into the environment. Never imports torch."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from attrs import frozen

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEAD_START = 3.0  # seconds; the launcher ends all processes when one has failed, and rank 0 must say why before


@frozen
class Ranks:
    """This process is `rank` of `size`, and number `local_rank` of the `local_size` on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self | None:
        """None unless a launcher started several processes; ModelError when it said only half of it."""
        size = environment.get("WORLD_SIZE", "1")
        if size == "1" or "RANK" not in environment:
            return None
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        if missing := [name for name in names if name not in environment]:
            raise ModelError(
                f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set; start all processes with torchrun, or "
                f"unset WORLD_SIZE and RANK to run in this process alone"
            )
        try:
            rank, local_rank = int(environment["RANK"]), int(environment["LOCAL_RANK"])
            local_size = int(environment.get("LOCAL_WORLD_SIZE", local_rank + 1))  # at least so many
            found = cls(rank, int(size), local_rank, local_size)
        except ValueError as error:
            raise ModelError(f"the launcher's ranks are not numbers: {error}; start with torchrun") from error
        if not 0 <= found.rank < found.size:
            raise ModelError(f"RANK is {found.rank}, which is not 0 to {found.size - 1}; start with torchrun")
        return found

    @property
    def leads(self) -> bool:
        """Whether this process runs the engine."""
        return self.rank == 0

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"


_apart: ContextVar[bool] = ContextVar("apart", default=False)


def launched() -> Ranks | None:
    """This process's place among several that share a target; None when it is alone."""
    return None if _apart.get() else Ranks.read(os.environ)


@contextmanager
def apart() -> Iterator[None]:
    """While it lasts, every process is alone: in training each has a whole target."""
    before = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(before)


@contextmanager
def one_voice() -> Iterator[None]:
    """Followers read nothing and say nothing: up to the moment when they follow they do what rank 0 does.

    What goes wrong on a follower alone, `Group.give_up` says.
    """
    follows = os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"
    if not follows:
        yield
        return
    with ExitStack() as restore:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            restore.callback(setattr, sys, name, getattr(sys, name))
            setattr(sys, name, restore.enter_context(open(os.devnull, mode, encoding="utf-8")))
        try:
            yield
        except SystemExit as end:
            if end.code:
                time.sleep(HEAD_START)
            raise
