"""The processes of a training run: one, or as many as `torchrun` or `accelerate launch` has started."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from draftmux.backends.parallel.ranks import HEAD_START, Ranks
from draftmux.errors import DraftmuxError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accelerate import PartialState

LONGEST = timedelta(days=14)  # that the others wait while one works
SHARDING = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_MEGATRON_LM")
MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


def processes() -> PartialState:
    """This one and the others. To be asked before a model is loaded: it settles on which device. DraftmuxError when
    they cannot work together."""
    from accelerate import PartialState

    ranks = _ranks()
    _refuse_settings()
    if ranks is None:
        return PartialState()
    from draftmux.backends.parallel.group import own_device, reason

    kind = own_device(ranks).type
    # Without `cpu`, accelerate takes processes that have no GPU each for one that is alone.
    how: dict[str, Any] = {"cpu": True, "backend": "gloo"} if kind == "cpu" else {}
    try:
        state = PartialState(timeout=LONGEST, **how)
        state.wait_for_everyone()  # NCCL connects at its first use: now, and not after hours of work
    except (RuntimeError, ValueError) as error:
        raise RequestError(
            f"{ranks} could not meet the others: {reason(error)}; start all of them with torchrun, on machines that "
            f"can reach each other"
        ) from error
    if state.num_processes != ranks.size:
        raise RequestError(
            f"{ranks.size} processes were started, and on {kind} accelerate joins {state.num_processes}; start a "
            f"single one, or use CUDA devices or CPUs"
        )
    return state


def alone(what: str) -> None:
    """For work that is not shared: RequestError if several processes were started, which would all do the same."""
    if (ranks := _ranks()) is not None:
        raise RequestError(f"{what} runs in one process, and {ranks.size} were started; start a single one")


@contextmanager
def together() -> Iterator[None]:
    """They leave once all are through. Only rank 0's output is seen, so an error of another is printed here."""
    ranks = _ranks()
    try:
        yield
    except DraftmuxError as error:
        if ranks is not None and not ranks.leads:
            time.sleep(HEAD_START)  # for rank 0, if it is its error too
            print(f"Error: {ranks}: {error}", file=sys.__stderr__, flush=True)
        raise
    _leave()


def _ranks() -> Ranks | None:
    """As a launcher said; RequestError under one whose processes do not find each other."""
    for name in MPI:
        if "RANK" not in os.environ and os.environ.get(name, "1") != "1":
            raise RequestError(
                f"{name} is {os.environ[name]}: mpirun started several processes, and training joins those that "
                f"torchrun starts; start them with torchrun, or unset {name} to train in one"
            )
    return Ranks.read(os.environ)


def _refuse_settings() -> None:
    """RequestError for what `accelerate launch` may ask for and training does not do."""
    import torch
    from accelerate.utils import parse_flag_from_env

    for name in SHARDING:
        if parse_flag_from_env(name):
            raise RequestError(
                f"{name} is set, and every process trains whole models; choose plain multi-GPU in `accelerate config`, "
                f"or start with torchrun"
            )
    if parse_flag_from_env("ACCELERATE_USE_CPU") and torch.accelerator.is_available():
        raise RequestError(
            "ACCELERATE_USE_CPU is set where a GPU can be seen; leave --cpu out, or hide GPUs from it with an empty "
            "CUDA_VISIBLE_DEVICES"
        )


def _leave() -> None:
    import torch.distributed as dist
    from accelerate import PartialState

    if dist.is_available() and dist.is_initialized():
        state = PartialState()
        state.wait_for_everyone()
        state.destroy_process_group()
