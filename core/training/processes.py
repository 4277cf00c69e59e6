"""The processes of a training run: one, or as many as `torchrun` or `accelerate launch` has started."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from draftmux.backends.parallel.ranks import HEAD_START, Ranks
from draftmux.errors import DraftmuxError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accelerate import PartialState

LONGEST = timedelta(days=14)  # that the others wait while one works


def processes() -> PartialState:
    """This one and the others. To be asked before a model is loaded: it settles on which device. RequestError when the
    others cannot be reached."""
    from accelerate import PartialState

    if "RANK" not in os.environ:
        return PartialState()
    import torch

    # Without `cpu`, accelerate takes processes that have no GPU each for one that is alone.
    state = PartialState(cpu=not torch.accelerator.is_available(), timeout=LONGEST)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != size:
        raise RequestError(
            f"{size} processes were started, but on {state.device.type} they cannot work together; start a single one, "
            f"or use CPUs or CUDA devices"
        )
    return state


def alone(what: str) -> None:
    """For work that is not shared: RequestError if several processes were started, which would all do the same."""
    if (ranks := Ranks.read(os.environ)) is not None:
        raise RequestError(f"{what} runs in one process, and {ranks.size} were started; start a single one")


@contextmanager
def together() -> Iterator[None]:
    """They part once all are through. An error of one that is not rank 0, whose output nobody sees, is said."""
    ranks = Ranks.read(os.environ)
    try:
        yield
    except DraftmuxError as error:
        if ranks is not None and not ranks.leads:
            time.sleep(HEAD_START)  # for rank 0, if it is its error too
            print(f"Error: {ranks}: {error}", file=sys.__stderr__, flush=True)
        raise
    if ranks is not None:
        _part()


def _part() -> None:
    import torch.distributed as dist
    from accelerate import PartialState

    if dist.is_available() and dist.is_initialized():
        state = PartialState()
        state.wait_for_everyone()
        state.destroy_process_group()
