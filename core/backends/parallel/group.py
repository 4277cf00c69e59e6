"""The processes that run one target together: how they meet, talk, and learn of each other's end.

Messages go over a gloo group of their own, whose wait for the next one has no end, since a server may idle; a process
that is gone ends it at once. Passes have a timeout: there, a rank that does not come is stuck. Knows no target.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
import torch.distributed as dist
from attrs import frozen
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from draftmux.errors import ModelError, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from draftmux.backends.parallel.ranks import Ranks

PACKET = 1024  # integers of the first packet: a step of a usual batch is one broadcast
# Ranks may load at very different speed. Groups that transformers makes for passes have torch's own, 10 to 30 minutes.
PASS_TIMEOUT = timedelta(minutes=30)
NO_END = timedelta(days=3650)
GRACE = timedelta(seconds=3)  # for rank 0 to say what went wrong


@frozen(eq=False)
class Group:
    """This process's end of it."""

    ranks: Ranks
    control: Any  # torch's process group for messages
    notes: Any  # torch's key-value store, which works when a collective cannot

    @classmethod
    def join(cls, ranks: Ranks) -> Self:
        """Wait for all ranks; ModelError when they cannot run a target together."""
        if dist.is_initialized():
            raise ModelError(
                f"torch.distributed is in use already, by a target that is loaded or by the program itself, and "
                f"{ranks.size} processes can run one target only. Start a job for each target; `bench` loads one "
                f"if the taps of one of its pipelines include those of all others"
            )
        device = own_device(ranks)
        try:
            return cls._meet(ranks, device)
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"{ranks} could not meet the others: {reason(error)}; start all of them with torchrun, on machines "
                f"that can reach each other"
            ) from error

    @classmethod
    def _meet(cls, ranks: Ranks, device: torch.device) -> Self:
        store, _, _ = next(iter(rendezvous("env://")))
        backend = dist.get_default_backend_for_device(device)
        dist.init_process_group(
            backend,
            store=PrefixStore("draftmux", store),
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=PASS_TIMEOUT,
            device_id=device if backend == "nccl" else None,
        )
        return cls(ranks, dist.new_group(backend="gloo", timeout=NO_END), PrefixStore("draftmux-notes", store))

    def send(self, message: NDArray[np.int64]) -> None:
        """To all followers."""
        first = np.zeros(PACKET, dtype=np.int64)
        first[0] = len(message)
        first[1 : 1 + len(message)] = message[: PACKET - 1]
        self._broadcast(first)
        if len(message) >= PACKET:
            self._broadcast(message[PACKET - 1 :].copy())

    def receive(self) -> NDArray[np.int64]:
        """What rank 0 sends next."""
        first = self._broadcast(np.zeros(PACKET, dtype=np.int64))
        size = int(first[0])
        if size < PACKET:
            return first[1 : 1 + size]
        return np.concatenate((first[1:], self._broadcast(np.zeros(size - PACKET + 1, dtype=np.int64))))

    def _broadcast(self, packet: NDArray[np.int64]) -> NDArray[np.int64]:
        try:
            dist.broadcast(torch.from_numpy(packet), src=0, group=self.control)  # in place
        except RuntimeError as error:
            raise ConnectionError(f"another rank has ended, or cannot be reached ({reason(error)})") from error
        return packet

    def note(self, error: BaseException) -> None:
        """Tell the others that this rank cannot go on, if there is still somebody to tell."""
        with suppress(RuntimeError):
            self.notes.set(str(self.ranks.rank), reason(error))

    def give_up(self, error: BaseException) -> NoReturn:
        """End this follower after a fault. If rank 0 met one as well it speaks for both, and is left to finish."""
        self.note(error)
        try:
            self.notes.wait(["0"], GRACE)
        except RuntimeError:
            print(f"Error: {self.ranks}: {reason(error)}; all ranks end", file=sys.__stderr__, flush=True)
        else:
            with suppress(ConnectionError):
                self.receive()  # nothing will come, but its end
        raise SystemExit(1)

    def leave(self) -> None:
        """Say goodbye to torch.distributed; every rank must do so."""
        with suppress(RuntimeError):
            dist.destroy_process_group()


def reason(error: BaseException) -> str:
    """What it says, without the frames that torch writes below."""
    return said(error).partition("\n")[0] or type(error).__name__


def ignore_interrupts() -> None:
    """A terminal interrupts all ranks at once; rank 0 decides what that means."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let an interrupt wait for the end of the call: in the middle of a pass, the others would wait for this rank."""
    before, came = signal.getsignal(signal.SIGINT), list[Any]()
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda *details: came.append(details))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(*came[0])


def own_device(ranks: Ranks) -> torch.device:
    """The device of this rank, made the current one; ModelError when there are not enough for all."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return torch.device("cpu")
    if accelerator.type == "mps":
        raise ModelError("an MPS device cannot work together with others; start a single process")
    count = torch.accelerator.device_count()
    if ranks.local_size > count:
        raise ModelError(
            f"{ranks.local_size} processes were started on this machine, but {count} {accelerator.type} device(s) are "
            f"visible, and each needs its own; start torchrun with --nproc-per-node {count}, or make more visible. "
            f"Where each sees only its own already, give each LOCAL_RANK=0 and LOCAL_WORLD_SIZE=1"
        )
    torch.accelerator.set_device_index(ranks.local_rank)
    return torch.device(accelerator.type, ranks.local_rank)
