"""How calls of a backend travel between processes: as flat int64 arrays. Nothing is pickled, nothing is executed.

Each call is written as its code, the length of its body, and the body. Knows nothing of processes or models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from attrs import field, frozen

from draftmux.protocols import Row
from draftmux.types import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def _ints(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


@frozen
class Open:
    """Prefill a sequence, which is `number` from now on."""

    code: ClassVar[int] = 1
    number: int
    tokens: tuple[int, ...] = field(converter=_ints)

    def body(self) -> list[int]:
        """As integers."""
        return [self.number, *self.tokens]

    @classmethod
    def read(cls, body: NDArray[np.int64]) -> Self:
        """From integers."""
        return cls(int(body[0]), body[1:].tolist())


@frozen(eq=False)
class Score:
    """One pass. The `sequence` of each row is a number. Laws and sources of drafts stay behind: no target sees them."""

    code: ClassVar[int] = 2
    rows: tuple[Row, ...]

    def body(self) -> list[int]:
        """As integers: per row its number, root, count of nodes, tokens, parents."""
        flat: list[int] = []
        for row in self.rows:
            flat += [row.sequence, row.root, len(row.draft), *row.draft.tokens.tolist(), *row.draft.parents.tolist()]
        return flat

    @classmethod
    def read(cls, body: NDArray[np.int64]) -> Self:
        """From integers."""
        rows, at = [], 0
        while at < len(body):
            number, root, nodes = body[at : at + 3].tolist()
            tokens, parents = body[at + 3 :][:nodes], body[at + 3 + nodes :][:nodes]
            rows.append(Row(number, root, Draft(tokens, parents)))
            at += 3 + 2 * nodes
        return cls(tuple(rows))


@frozen
class Commit:
    """Keep root and path."""

    code: ClassVar[int] = 3
    number: int
    path: tuple[int, ...] = field(converter=_ints)

    def body(self) -> list[int]:
        """As integers."""
        return [self.number, *self.path]

    @classmethod
    def read(cls, body: NDArray[np.int64]) -> Self:
        """From integers."""
        return cls(int(body[0]), body[1:].tolist())


@frozen
class Close:
    """Free a sequence."""

    code: ClassVar[int] = 4
    number: int

    def body(self) -> list[int]:
        """As integers."""
        return [self.number]

    @classmethod
    def read(cls, body: NDArray[np.int64]) -> Self:
        """From integers."""
        return cls(int(body[0]))


@frozen
class Cost:
    """Measure a pass."""

    code: ClassVar[int] = 5
    nodes: int

    def body(self) -> list[int]:
        """As integers."""
        return [self.nodes]

    @classmethod
    def read(cls, body: NDArray[np.int64]) -> Self:
        """From integers."""
        return cls(int(body[0]))


@frozen
class Stop:
    """Nothing follows."""

    code: ClassVar[int] = 6

    def body(self) -> list[int]:
        """Nothing."""
        return []

    @classmethod
    def read(cls, body: NDArray[np.int64]) -> Self:
        """From nothing."""
        return cls()


Call = Open | Score | Commit | Close | Cost | Stop
KINDS: dict[int, type[Call]] = {kind.code: kind for kind in (Open, Score, Commit, Close, Cost, Stop)}


def encode(calls: Sequence[Call]) -> NDArray[np.int64]:
    """All calls in one flat array."""
    flat: list[int] = []
    for call in calls:
        body = call.body()
        flat += [call.code, len(body), *body]
    return np.array(flat, dtype=np.int64)


def decode(flat: NDArray[np.int64]) -> Iterator[Call]:
    """The calls again, in order."""
    at = 0
    while at < len(flat):
        code, size = flat[at : at + 2].tolist()
        yield KINDS[code].read(flat[at + 2 : at + 2 + size])
        at += 2 + size
