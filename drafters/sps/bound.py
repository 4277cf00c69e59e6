"""A draft model at work: what it has read of each sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
from attrs import define, field

from draftmux.backends.beside import Reader
from draftmux.backends.masks import Feed
from draftmux.drafters.neural.bound import BoundNeural
from draftmux.drafters.neural.laws import Law
from draftmux.drafters.sps.model import load
from draftmux.types import Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from draftmux.backends.target import SlotSequence
    from draftmux.drafters.sps.drafter import Sps
    from draftmux.protocols import DraftRequest, Resources
    from draftmux.types import Context, Scores, Step

CHUNK = 16  # pending tokens up to which sequences catch up in one common pass


@define(eq=False)
class Reading:
    """One sequence: what the draft model has read of it. `read (m,)` are the ids whose keys and values are valid."""

    law: Law | None  # None: it does not draft
    sequence: SlotSequence | None = None
    read: NDArray[np.int64] = field(factory=lambda: np.zeros(0, dtype=np.int64))


@define(eq=False)
class BoundSps(BoundNeural):
    """A draft model at work. A pass reads what was committed since it last drafted, however long that was ago."""

    carry: None = None
    needs: Needs = field(factory=Needs, init=False)
    readings: WeakValueDictionary[str, Reading] = field(factory=WeakValueDictionary, init=False)  # by request

    @classmethod
    def load(cls, options: Sps, resources: Resources) -> BoundSps:
        """The draft model on the target's backend; ModelError when it does not fit."""
        assert resources.backend is not None
        target, vocabulary = load(options, resources)
        return cls(options, resources.backend, Reader.over(target, max(CHUNK, options.top_k)), vocabulary)

    def begin(self, context: Context) -> Reading:
        """Nothing is read yet."""
        self.reader.sweep()
        reading = Reading(Law.of(context, self.backend, self.vocabulary, self.options.shape()))
        self.readings[context.request_id] = reading
        return reading

    def observe(self, state: Reading, step: Step) -> None:
        """Nothing to do: committed tokens are in the context."""

    def room(self, context: Context) -> int:
        """Levels that the draft model has positions for; none where it has no embedding for one of the tokens."""
        limit, size = self.reader.target.max_length, self.reader.target.vocab_size
        if size < self.backend.vocab_size and context.tokens.max() >= size:
            return 0
        return self.options.depth if limit is None else limit - len(context.tokens)

    def catch_up(self, requests: Sequence[DraftRequest]) -> list[Scores]:
        """Read the pending tokens; the last row of each sequence."""
        target = self.reader.target
        feeds = []
        for request in requests:
            state, tokens = request.state, request.context.tokens
            pending = tokens[self._valid(state, tokens[:-1]) :]
            if len(pending) > CHUNK:
                target.fill(state.sequence, pending[:-1])
            feeds.append(Feed.run(tokens[state.sequence.length :], state.sequence.length))
        found = target.forward([r.state.sequence for r in requests], feeds)
        for request in requests:
            request.state.sequence.length, request.state.read = len(request.context.tokens), request.context.tokens
        return [scores.last() for scores in found]

    def whole(self, request_id: str, tokens: NDArray[np.int64]) -> Reading:
        """A request's reading with all its tokens in its row, and nothing behind them: what is written there is not
        taken for read. Hold it as long as the row is in use: for a request that this drafter does not know, or whose
        name another one has taken, it is a new one."""
        state = self.readings.get(request_id)
        if state is None:
            self.reader.sweep()
            state = Reading(None)
        pending = tokens[self._valid(state, tokens) :]
        assert state.sequence is not None
        if len(pending):
            self.reader.target.fill(state.sequence, pending)
        state.read = tokens
        return state

    def _valid(self, state: Reading, tokens: NDArray[np.int64]) -> int:
        """How many tokens of a sequence are in its row, which is cut to them."""
        if state.sequence is None:
            state.sequence = self.reader.open(state)
        state.sequence.length = common_prefix(state.read, tokens)
        return state.sequence.length

    def extend(self, requests: Sequence[DraftRequest], feeds: Sequence[Feed]) -> list[Scores]:
        """One pass over drafted nodes. Those of a chain stand where they would if they were committed: they count."""
        found = self.reader.target.forward([r.state.sequence for r in requests], feeds)
        if self.options.top_k == 1:
            for request, feed in zip(requests, feeds, strict=True):
                request.state.sequence.length = feed.end
                request.state.read = np.concatenate((request.state.read, feed.tokens))
        return found

    def start(self, request: DraftRequest) -> int:
        """Behind all committed tokens."""
        return len(request.context.tokens)


def common_prefix(read: NDArray[np.int64], tokens: NDArray[np.int64]) -> int:
    """How many ids at the beginning are the same."""
    length = min(len(read), len(tokens))
    differing = np.flatnonzero(read[:length] != tokens[:length])
    return int(differing[0]) if len(differing) else length
