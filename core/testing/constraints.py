"""A constraint small enough to know everything about: a random automaton over token ids. No library, no tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from draftmux.protocols import Vocabulary


@frozen(eq=False)
class AutomatonState:
    """Where the automaton stands. `moves (S, V)` are next states, -1 where a token is not allowed."""

    moves: NDArray[np.int64]
    at: int = 0

    def allowed(self) -> NDArray[np.bool_]:
        """Tokens with a move."""
        return np.asarray(self.moves[self.at] >= 0)

    def advance(self, token: int) -> AutomatonState | None:
        """The next state."""
        ahead = int(self.moves[self.at, token])
        return AutomatonState(self.moves, ahead) if ahead >= 0 else None


@frozen
class Automaton:
    """Random moves between a few states, each of which allows some tokens; the text may end in some of them."""

    seed: int = 0
    states: int = 4
    share: float = 0.6

    def begin(self, vocabulary: Vocabulary) -> AutomatonState:
        """The first state. Every state allows at least one token that does not end the text."""
        rng = np.random.default_rng(self.seed)
        moves = rng.integers(0, self.states, (self.states, vocabulary.size))
        moves[rng.random(moves.shape) > self.share] = -1
        ends = sorted(vocabulary.end_ids)
        inner = [token for token in range(vocabulary.size) if token not in vocabulary.end_ids]
        for state in range(self.states):
            if inner:
                moves[state, inner[int(rng.integers(len(inner)))]] = int(rng.integers(self.states))
            moves[state, ends] = state if rng.random() < 0.4 else -1
        return AutomatonState(moves)
