"""What a target pass costs by its number of rows: the curve, and how it is measured.

Knows a bound backend by its protocol alone. Knows nothing of where curves are kept, or of who follows them.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
from attrs import field, frozen

from draftmux.protocols import Row
from draftmux.types import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from draftmux.protocols import BoundBackend

    Tick = Callable[[int, int], object]  # passes done, passes in all

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 208)
CONTEXT = 256
REPEATS = 3


def _sizes(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(map(float, values))


@frozen
class CostCurve:
    """Seconds of a pass over so many rows. It need not rise: two rows can cost more than eight.

    Raises ValueError unless rows are positive and rise, and seconds are finite and positive, one for each.
    """

    rows: tuple[int, ...] = field(converter=_sizes)
    seconds: tuple[float, ...] = field(converter=_floats)

    def __attrs_post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.seconds):
            raise ValueError(f"a cost curve has {len(self.seconds)} times for {len(self.rows)} sizes; give one each")
        if any(more <= fewer for fewer, more in zip((0, *self.rows), self.rows, strict=False)):
            raise ValueError(f"the sizes of a cost curve must be positive and rise, not {self.rows}")
        if not all(math.isfinite(seconds) and seconds > 0 for seconds in self.seconds):
            raise ValueError(f"the times of a cost curve must be finite and positive, not {self.seconds}")

    def at(self, rows: int) -> float:
        """Seconds of a pass over `rows`: between measured sizes on a straight line, beyond the last as it went on."""
        last = self.rows[-1]
        if rows <= last or len(self.rows) == 1:
            return float(np.interp(rows, self.rows, self.seconds))
        slope = (self.seconds[-1] - self.seconds[-2]) / (last - self.rows[-2])
        return self.seconds[-1] + max(0.0, slope) * (rows - last)


def measure(
    time_pass: Callable[[int], float], sizes: Sequence[int], repeats: int = REPEATS, tick: Tick | None = None
) -> CostCurve:
    """The curve of medians of `time_pass(rows)`. Sizes take turns, after a pass each that does not count."""
    times: dict[int, list[float]] = {rows: [] for rows in sizes}
    for turn in range(repeats + 1):
        for at, rows in enumerate(sizes):
            seconds = time_pass(rows)
            if turn:  # the first one sets up buffers, kernels and graphs
                times[rows].append(seconds)
            if tick is not None:
                tick(turn * len(sizes) + at + 1, (repeats + 1) * len(sizes))
    return CostCurve(sizes, [statistics.median(found) for found in times.values()])


def measure_backend(backend: BoundBackend, repeats: int = REPEATS, tick: Tick | None = None) -> CostCurve:
    """The curve of a target at up to 256 tokens of context; sizes that its `max_length` has no room for are left out.

    Other sequences may be open, and are not disturbed.
    """
    room = backend.max_length or CONTEXT + ROWS[-1]
    sizes = [rows for rows in ROWS if rows < max(2, room)]  # a last row at the very end would have no token to score
    sequence = backend.open([0] * max(1, min(CONTEXT, room - sizes[-1]))).sequence

    def time_pass(rows: int) -> float:
        row = Row(sequence, 0, Draft.chain([0] * (rows - 1)))
        started = time.perf_counter()
        backend.score([row])[0].logits[0, 0].item()  # waits for the device
        return time.perf_counter() - started

    try:
        return measure(time_pass, sizes, repeats, tick)
    finally:
        backend.close(sequence)
