"""One running sequence: its tokens, its handle in the backend, the state of every plugin for it, its text."""

from __future__ import annotations

import time
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

from draftmux.arrays import frozen_view
from draftmux.engine.metrics import Metrics
from draftmux.results import Result
from draftmux.types import Budget, Context, Reading, Step, Tap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from draftmux.engine.affordable import Pace
    from draftmux.engine.stopping import Stopping
    from draftmux.errors import DraftmuxError
    from draftmux.generation import Generation
    from draftmux.protocols import CacheHandle, ConstraintState
    from draftmux.results import FinishReason
    from draftmux.sampling import SamplingRule

HISTORY = 64  # steps a plugin can look back; bounds memory of long requests


class Unusable:
    """State of a plugin whose `begin` failed for this sequence: it is not asked again."""


UNUSABLE = Unusable()


@define(eq=False)
class Session:
    """State of one request between steps. Invariant: the backend holds all committed tokens but the last, the root."""

    request_id: str
    generation: Generation
    rule: SamplingRule
    stopping: Stopping
    handle: CacheHandle
    prompt_length: int
    taps: Mapping[Tap, Any]
    _tokens: NDArray[np.int64]
    constraint: ConstraintState | None = None  # after all committed tokens
    states: dict[str, Any] = field(factory=dict)
    router_state: Any = None
    verifier_state: Any = None
    history: deque[Step] = field(factory=lambda: deque(maxlen=HISTORY))
    metrics: Metrics = field(factory=Metrics)
    readings: Mapping[Reading, float] = field(factory=dict)  # of the last committed row
    pace: Pace | None = None  # from the first `max_nodes: auto` on
    texts: list[str] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    finish_reason: FinishReason | None = None
    error: DraftmuxError | None = None
    started: float = field(factory=time.perf_counter)
    _length: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._length = self.prompt_length

    @property
    def tokens(self) -> NDArray[np.int64]:
        """All committed ids, `(T,)`; a read-only view."""
        return frozen_view(self._tokens[: self._length])

    @property
    def root(self) -> int:
        """The last committed token; it has not been through the target."""
        return int(self._tokens[self._length - 1])

    def context(self) -> Context:
        """What plugins see of this sequence now. Tokens are a copy: torch, for one, writes through read-only views."""
        return Context(
            request_id=self.request_id,
            tokens=frozen_view(self.tokens.copy()),
            prompt_length=self.prompt_length,
            remaining=self.stopping.remaining,
            taps=MappingProxyType(dict(self.taps)),
            history=tuple(self.history),
            generation=self.generation,
            draft_seconds=MappingProxyType(self.metrics.draft_seconds),
            readings=MappingProxyType(dict(self.readings)),
        )

    def budget(self, asked: Budget) -> Budget:
        """`asked`, cut so that no node can pass the length limit: a step adds one token of the target's own."""
        return asked.within(Budget(max_depth=max(0, self.stopping.remaining - 1)))

    def extend(self, tokens: tuple[int, ...]) -> None:
        """Append committed ids."""
        end = self._length + len(tokens)
        if end > len(self._tokens):
            grown = np.empty(2 * end, dtype=np.int64)
            grown[: self._length] = self._tokens[: self._length]
            self._tokens = grown
        self._tokens[self._length : end] = tokens
        self._length = end

    def result(self, lossless: bool) -> Result:
        """The finished request."""
        return Result(
            request_id=self.request_id,
            prompt_tokens=self.prompt_length,
            tokens=tuple(self.tokens[self.prompt_length :].tolist()),
            text="".join(self.texts),
            finish_reason=self.finish_reason or "cancelled",
            metrics=self.metrics,
            lossless=lossless,
            seconds=time.perf_counter() - self.started,
            logprobs=tuple(self.logprobs) if self.generation.logprobs else None,
        )
