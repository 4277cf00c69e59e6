"""Rank 0's end of a target that several processes run: says every call before it makes it.

It is a backend like any other. What it must not have is `model`: a forward of rank 0's shard alone would wait forever.
"""

from __future__ import annotations

import atexit
import itertools
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, evolve, field

from draftmux.backends.parallel.group import reason, uninterrupted
from draftmux.backends.parallel.wire import Call, Close, Commit, Cost, Open, Score, Stop, encode
from draftmux.errors import ModelError
from draftmux.protocols import Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from draftmux.backends.parallel.group import Group
    from draftmux.protocols import BoundBackend, Row
    from draftmux.types import Scores

Answer = TypeVar("Answer")
PATIENCE = 5.0  # seconds that the end of the process waits for a pass of another thread


@define(eq=False)
class Numbered:
    """Handle of one sequence: the number that followers know it by, and rank 0's own handle."""

    number: int
    sequence: Any
    closed: bool = False

    @property
    def length(self) -> int:
        """Rows in the cache."""
        return int(self.sequence.length)


@define(eq=False)
class Leader:
    """Wraps rank 0's shard. `commit` and `close` touch no other rank, so they travel with the next pass."""

    target: BoundBackend
    group: Group
    _numbers: itertools.count[int] = field(factory=itertools.count, init=False)
    _queued: list[Call] = field(factory=list, init=False)
    _lock: RLock = field(factory=RLock, init=False)
    _lost: str = field(default="", init=False)

    @classmethod
    def over(cls, target: BoundBackend, group: Group) -> Leader:
        """Lead from now on, and let the followers go when this process ends, however it ends."""
        leader = cls(target, group)
        atexit.register(leader.end)
        return leader

    @property
    def vocab_size(self) -> int:
        """Rows of the whole output layer: its logits are gathered."""
        return self.target.vocab_size

    @property
    def max_length(self) -> int | None:
        """Positions that the target attends to."""
        return self.target.max_length

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        return self.target.eos_ids

    @property
    def device(self) -> Any:
        """Rank 0's device."""
        return self.target.device

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer."""
        return self.target.tokenizer

    def open(self, tokens: Sequence[int]) -> Opened:
        """Prefill, on all ranks."""
        number = next(self._numbers)
        opened = self._together(Open(number, tokens), partial(self.target.open, tokens))
        return Opened(Numbered(number, opened.sequence), opened.taps)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """One pass, on all ranks."""
        told = Score(tuple(evolve(row, sequence=row.sequence.number) for row in rows))
        own = [evolve(row, sequence=row.sequence.sequence) for row in rows]
        return self._together(told, partial(self.target.score, own))

    def commit(self, sequence: Numbered, path: Sequence[int]) -> None:
        """Keep root and path; the others do so before their next pass."""
        with self._fatal():
            self._queued.append(Commit(sequence.number, path))
            self.target.commit(sequence.sequence, path)

    def close(self, sequence: Numbered) -> None:
        """Free the sequence; the others do so before their next pass."""
        if sequence.closed or self._lost:
            return
        sequence.closed = True
        with self._fatal():
            self._queued.append(Close(sequence.number))
            self.target.close(sequence.sequence)

    def cost(self, nodes: int) -> float:
        """Rank 0's seconds of a pass that all ranks run."""
        return self._together(Cost(nodes), partial(self.target.cost, nodes))

    def end(self) -> None:
        """Let the followers go. After a fault they find out by themselves, when this process is gone."""
        if self._lost or not self._lock.acquire(timeout=PATIENCE):
            return
        try:
            self._lost = "the job has ended"
            self.group.send(encode([Stop()]))
            self.group.leave()
        except ConnectionError:  # they are gone already
            pass
        finally:
            self._lock.release()

    def _together(self, call: Call, work: Callable[[], Answer]) -> Answer:
        with self._fatal():
            self.group.send(encode([*self._queued, call]))
            self._queued.clear()
            return work()

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        """After any fault the ranks may stand at different places, and the next pass would wait for one of them."""
        with uninterrupted(), self._lock:
            if self._lost:
                raise ModelError(self._lost)
            try:
                yield
            except BaseException as error:
                ranks = self.group.ranks
                self._lost = (
                    f"a call of the target failed on {ranks}: {reason(error)}. The others may wait "
                    f"for it in the middle of a pass, so these {ranks.size} processes cannot go on; start them again"
                )
                self.group.note(error)
                if isinstance(error, Exception):
                    raise ModelError(self._lost) from error
                raise
