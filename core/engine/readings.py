"""Numbers that the router reads off tapped states: launched behind a pass, fetched together with the picks.

Knows nothing of what a router does with them. One that fails is not a number.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import define, field

from draftmux.errors import DraftError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.engine.session import Session
    from draftmux.engine.step import Parts
    from draftmux.types import Reading, Scores, Step, Tap


@define(eq=False)
class Readings:
    """Those of one pass. `packed` are the bits of all of them, as whole numbers on the device."""

    readings: tuple[Reading, ...]
    places: Mapping[Session, int]  # where a session's rows begin
    packed: Tensor | None
    values: NDArray[np.float32] = field(init=False)  # (readings, rows of all sessions)

    @classmethod
    def launch(cls, parts: Parts, sessions: Sequence[Session], scores: Sequence[Scores]) -> Readings:
        """Compute all of them; nothing is waited for."""
        wanted = parts.readings
        if not wanted:
            return cls((), {}, None)
        rows = [len(each.logits) for each in scores]
        starts = accumulate(rows, initial=0)
        values = [
            _read(parts, session, reading, each.taps, count)
            for reading in wanted
            for session, each, count in zip(sessions, scores, rows, strict=True)
        ]
        packed = torch.cat([value.to(values[0].device) for value in values]).view(torch.int32).long()
        return cls(wanted, dict(zip(sessions, starts, strict=False)), packed)

    def take(self, fetched: Sequence[int]) -> None:
        """What `packed` came out as."""
        values = np.array(fetched, dtype=np.int32).view(np.float32)
        self.values = values.reshape(len(self.readings), -1) if self.readings else values[None]

    def at(self, session: Session, step: Step) -> dict[Reading, float]:
        """Those of the last row that the session has committed."""
        if not self.readings:
            return {}
        kept = step.acceptance.path[: len(step.committed) - 1]
        row = self.places[session] + (kept[-1] + 1 if kept else 0)
        return dict(zip(self.readings, self.values[:, row].tolist(), strict=True))


def opening(parts: Parts, session: Session) -> dict[Reading, float]:
    """Those of the last position that the prefill went over; not a number after a prompt of one token."""
    found = {}
    for reading in parts.readings:
        last = {tap: states[-1:] for tap, states in session.taps.items() if tap == reading.tap and len(states)}
        found[reading] = float(_read(parts, session, reading, last, 1)) if last else math.nan
    return found


def _read(parts: Parts, session: Session, reading: Reading, taps: Mapping[Tap, Any], rows: int) -> Tensor:
    """`(rows,)` in float32 on the states' device; not a number where it fails."""

    def read() -> Tensor:
        value: Any = reading.read(taps[reading.tap])
        if tuple(getattr(value, "shape", ())) != (rows,):
            raise DraftError(
                f"a reading of {reading.tap} must be a tensor of {rows} numbers, one a row, not {type(value).__name__} "
                f"of {tuple(getattr(value, 'shape', ()))}"
            )
        numbers: Tensor = value.detach().to(torch.float32).contiguous()
        return numbers

    with torch.inference_mode():
        found = parts.guard.call("router", [session], read, None)
    return torch.full((rows,), math.nan) if found is None else found
