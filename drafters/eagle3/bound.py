"""A head at work: what it has read of each sequence, and what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from attrs import define

from draftmux.backends.beside import Reader
from draftmux.backends.masks import Feed
from draftmux.drafters.eagle3.checkpoint import OUTPUT, load
from draftmux.drafters.neural.bound import BoundNeural
from draftmux.drafters.neural.laws import Law
from draftmux.errors import PluginError
from draftmux.types import Needs, Tap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from draftmux.backends.target import SlotSequence
    from draftmux.drafters.eagle3.drafter import Eagle3
    from draftmux.protocols import BoundBackend, DraftRequest
    from draftmux.types import Context, Scores, Step

CHUNK = 16  # pending pairs up to which sequences catch up in one common pass


@define(eq=False)
class Pairs:
    """One sequence: pairs that the head has read, as many as the length of its row, and states that wait for it.

    `pending`: the target's states `(rows, taps * d)` of the positions from there on.
    """

    law: Law
    pending: list[Tensor]
    sequence: SlotSequence | None = None
    newest: Tensor | None = None  # (1, taps * d) of the last pair read

    @property
    def read(self) -> int:
        """Pairs in the head's cache."""
        return self.sequence.length if self.sequence is not None else 0

    def now_read(self, pairs: int) -> None:
        """Everything that waited is read."""
        assert self.sequence is not None
        self.sequence.length, self.newest = pairs, self.pending[-1][-1:]
        self.pending = [self.newest[:0]]


@define(eq=False)
class BoundEagle3(BoundNeural):
    """A head at work. A pass reads what was committed since it last drafted, with the target's own states."""

    taps: tuple[Tap, ...]
    carry: Tap = OUTPUT

    @classmethod
    def load(cls, options: Eagle3, backend: BoundBackend | None) -> BoundEagle3:
        """The head on the target's backend; ModelError when it does not fit."""
        assert backend is not None
        target, vocabulary, taps = load(options, backend)
        return cls(options, backend, Reader.over(target, max(CHUNK, options.top_k)), vocabulary, taps)

    @property
    def needs(self) -> Needs:
        """The target's states."""
        return Needs(taps=self.taps)

    def begin(self, context: Context) -> Pairs:
        """Nothing is read yet; the prompt's states wait."""
        self.reader.sweep()
        law = Law.of(context, self.backend, self.vocabulary, self.options.shape())
        return Pairs(law, [self._joined(context.taps)])

    def observe(self, state: Pairs, step: Step) -> None:
        """Queue the states of the committed rows."""
        state.pending.append(self._joined(step.taps))

    def _joined(self, taps: Mapping[Tap, Tensor]) -> Tensor:
        return torch.cat([taps[tap] for tap in self.taps], -1)

    def room(self, context: Context) -> int:
        """Levels that the head has positions for; none before there is a pair."""
        if len(context.tokens) < 2:
            return 0
        limit = self.reader.target.max_length
        return self.options.depth if limit is None else limit - len(context.tokens) + 1

    @torch.inference_mode()
    def catch_up(self, requests: Sequence[DraftRequest]) -> list[Scores]:
        """Read the pending pairs; the last row of each sequence."""
        feeds = [self._pending(request) for request in requests]
        found = self.reader.target.forward([r.state.sequence for r in requests], feeds)
        for request in requests:
            request.state.now_read(len(request.context.tokens) - 1)
        return [self._handed_on(scores.last()) for scores in found]

    def _pending(self, request: DraftRequest) -> Feed:
        """The pairs that were not read yet, of many only the last ones: the others are read at once."""
        state, tokens = request.state, request.context.tokens
        if state.sequence is None:
            state.sequence = self.reader.open(state)
        states = torch.cat(state.pending)
        if not len(states) and state.newest is not None:  # asked again before the next step: read the last pair anew
            states, state.sequence.length = state.newest, state.read - 1
        if len(states) != len(tokens) - 1 - state.read:
            raise PluginError(
                f"eagle3 was told the states of {state.read + len(states)} positions of {len(tokens) - 1}; `observe` "
                f"must be called after every step"
            )
        target = self.reader.target
        while len(states) > CHUNK:  # what is read is let go: states of a long prompt are large
            part = min(target.prefill_chunk, len(states) - 1)
            target.fill(state.sequence, tokens[state.read + 1 :][:part], target.model.fuse(states[:part]))
            states = states[part:]
            state.pending = [states]
        state.pending = [states]  # until the pass is through
        return Feed.run(tokens[state.read + 1 :], state.read, target.model.fuse(states))

    @torch.inference_mode()
    def extend(self, requests: Sequence[DraftRequest], feeds: Sequence[Feed]) -> list[Scores]:
        """One pass over drafted nodes, which read their parents' states."""
        found = self.reader.target.forward([r.state.sequence for r in requests], feeds)
        return [self._handed_on(scores) for scores in found]

    def _handed_on(self, scores: Scores) -> Scores:
        scores.taps[OUTPUT] = self.reader.target.model.carried(scores.taps[OUTPUT])  # type: ignore[index]
        return scores

    def start(self, request: DraftRequest) -> int:
        """Behind all pairs of committed tokens."""
        return len(request.context.tokens) - 1
