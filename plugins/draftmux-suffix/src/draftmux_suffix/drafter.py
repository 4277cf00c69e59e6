"""SuffixDecoding (arXiv 2411.04975): of all suffixes of the text, continue the one that promises the most tokens."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, ClassVar, Literal

from attrs import define, evolve, field, frozen

from draftmux.options import option
from draftmux.types import Budget, Context, Draft, Emits, Needs
from draftmux_suffix.guess import Guess, path, tree
from draftmux_suffix.shared import SharedOutputs
from draftmux_suffix.trie import SuffixTrie, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from draftmux.protocols import Drafter, DraftRequest, Resources
    from draftmux.types import Step
    from draftmux_suffix.trie import Point

DRAFTS = ("path", "tree")
ROUNDING = 1e-6  # so that 0.1 * 30 counts as 3


@frozen
class SuffixDecoding:
    """Drafts a chain or a tree; empty when no suffix of the text stood before."""

    needs: ClassVar[Needs] = Needs()

    depth: int = option(
        "tokens of a match and its continuation, together, at most; 2 to 64", default=24, minimum=2, maximum=64
    )
    factor: float = option("draft at most factor * match + offset tokens", default=1.0, minimum=0)
    offset: float = option("draft at most factor * match + offset tokens", default=0.0)
    max_spec: int = option("tokens to draft at most, whatever the match", default=32, minimum=1)
    min_prob: float = option("least estimated probability of a drafted token", default=0.1, minimum=0, maximum=1)
    draft: Literal["path", "tree"] = option(
        "one chain, or a tree of the likeliest tokens", default="path", choices=DRAFTS
    )
    shared: bool = option("also draft from what earlier requests were answered; lets them be noticed", default=False)
    max_requests: int = option("earlier requests to remember at most, if shared", default=1000, minimum=1)
    _outputs: SharedOutputs | None = field(default=None, kw_only=True, eq=False, repr=False)

    @property
    def emits(self) -> Emits:
        """Chains, or trees where asked for; without `q`, since nothing is sampled."""
        return Emits(tree=self.draft == "tree")

    def uses(self) -> tuple[str, ...]:
        """No other drafter."""
        return ()

    def bind(self, resources: Resources) -> Drafter:
        """With `shared`, a drafter with a memory of its own."""
        return evolve(self, outputs=SharedOutputs(self.depth, self.max_requests)) if self.shared else self

    def begin(self, context: Context) -> Suffixes:
        """The suffixes of the sequence."""
        state = Suffixes(self, self._outputs)
        state.catch_up(context.tokens)
        if self._outputs is not None:
            self._outputs.enter(state, state.output)
        return state

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """A draft each."""
        return [r.state.guess(r.context.tokens, r.budget).draft() for r in requests]

    def observe(self, state: Suffixes, step: Step) -> None:
        """Note what was committed, for later requests; the sequence's own trie catches up when it is asked."""
        if self._outputs is not None:
            state.output.extend(step.committed)

    def room(self, match: int, budget: Budget) -> Budget:
        """What may be drafted after a match of that length."""
        limit = int(match * self.factor + self.offset + ROUNDING)
        return budget.within(Budget(max_nodes=max(0, min(self.max_spec, limit))))


@define(eq=False)
class Suffixes:
    """One sequence: a trie of its prompt and committed tokens, and what it may read of earlier requests."""

    options: SuffixDecoding
    shared: SharedOutputs | None
    trie: SuffixTrie = field(init=False)
    text: Text = field(init=False)
    output: array[int] = field(init=False, factory=lambda: array("q"))

    def __attrs_post_init__(self) -> None:
        self.trie = SuffixTrie(self.options.depth)
        self.text = self.trie.open()

    def catch_up(self, tokens: NDArray[np.int64]) -> None:
        """Take in what of the committed `tokens (T,)` is new. O(depth) a token."""
        self.trie.append(self.text, tokens[len(self.text.tokens) :].tolist())

    def guess(self, tokens: NDArray[np.int64], budget: Budget) -> Guess:
        """The draft with the largest score that continues the committed `tokens (T,)` within `budget`.

        On ties the longer match wins, and the sequence's own text over that of others. The score estimates how many
        of the draft's tokens will be accepted; without a match it is 0 and the draft is empty.
        """
        self.catch_up(tokens)
        own = self._best(self.trie, [(node, 0) for node in self.text.matched], budget, Guess())
        if self.shared is None:
            return own
        with self.shared.lock:
            points = self.shared.trie.matches(self.text.tokens[1 - self.options.depth :])
            best = self._best(self.shared.trie, points, budget, own)
        best.shared = best is not own
        return best

    def _best(self, trie: SuffixTrie, points: list[Point], budget: Budget, best: Guess) -> Guess:
        """The best of `best` and the continuations of `points`, which stand for matches of length 1, 2, ..."""
        options = self.options
        grow = path if options.draft == "path" else tree
        for match, point in reversed(list(enumerate(points, 1))):
            room = options.room(match, budget)
            if room.max_nodes <= best.score:  # a token adds at most 1, and shorter matches have no more room
                break
            found = grow(trie, point, room, options.min_prob)
            if found.score > best.score:
                best = found
                best.match = match
        return best
