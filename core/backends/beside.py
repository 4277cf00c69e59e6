"""A draft model on the target's kind of backend, with a KV row for each sequence that drafts."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from attrs import define, field

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftmux.backends.target import SlotSequence, Target
    from draftmux.protocols import BoundBackend


@define(eq=False)
class Reader:
    """Passes of a draft model. A row is freed once the state that it was opened for is gone."""

    target: Target
    _gone: deque[SlotSequence] = field(factory=deque, init=False)

    @classmethod
    def over(cls, target: Target, rows: int) -> Reader:
        """Ready for passes of up to `rows` rows of a sequence."""
        target.warm_up(rows - 1)
        return cls(target)

    def open(self, owner: Any) -> SlotSequence:
        """An empty row that lives as long as `owner`."""
        sequence: SlotSequence = self.target.open([0]).sequence
        weakref.finalize(owner, self._gone.append, sequence).atexit = False
        return sequence

    def sweep(self) -> None:
        """Free the rows of states that are gone. A state may go at any moment, so its row waits for a good one."""
        while self._gone:
            self.target.close(self._gone.popleft())


def host_of(backend: BoundBackend | None, drafter: str) -> Callable[..., Target]:
    """How a target's backend takes another model; ModelError for backends that cannot."""
    beside = getattr(backend, "beside", None)
    if beside is None:
        kind = type(backend).__name__
        raise ModelError(
            f"{drafter} runs a model of its own on the target's backend, and {kind} cannot; use `backend: {{use: "
            f"static}}`, `transformers` or `h100`, in one process"
        )
    return beside  # type: ignore[no-any-return]
