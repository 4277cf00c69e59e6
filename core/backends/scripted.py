"""A target given by a function from prefix to logits: for tests, and for laws small enough to enumerate.

It keeps the same books as a real backend (a cache of processed tokens, one row short of the committed ones), so the
engine's cache discipline is tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, field, frozen

from draftmux.errors import ModelError
from draftmux.options import option
from draftmux.protocols import Opened
from draftmux.types import Scores

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.models.source import ModelSpec
    from draftmux.protocols import Row
    from draftmux.types import Tap

Law = Callable[[tuple[int, ...]], Sequence[float]]


@frozen
class ScriptedBackend:
    """Options: a table of logits by the last token. Tests that need more build `ScriptedTarget` themselves."""

    takes_model: ClassVar[bool] = False

    table: dict[int, list[float]] = option("logits of the next token, by the last token", default={})
    eos_ids: list[int] = option("ids that end a sequence", default=[])
    max_length: int | None = option("positions the target attends to", default=None)

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> ScriptedTarget:
        """A target that reads the table; ModelError when the table is not square or taps are wanted."""
        if taps:
            raise ModelError(
                f"the scripted backend has no hidden states, and tap {taps[0]} is needed; use transformers"
            )
        size = len(self.table)
        if not size or any(key not in self.table or len(self.table[key]) != size for key in range(size)):
            raise ModelError(f"table must give, for every id 0 to {max(size - 1, 0)}, one logit an id")
        return ScriptedTarget(lambda prefix: self.table[prefix[-1]], size, frozenset(self.eos_ids), self.max_length)


@define(eq=False)
class ScriptedSequence:
    """Handle of one sequence: what went through the target, and the draft that was scored last."""

    processed: list[int]
    scored: Row | None = None
    closed: bool = False

    @property
    def length(self) -> int:
        """Rows in the cache."""
        return len(self.processed)


@define(eq=False)
class ScriptedTarget:
    """A bound scripted backend. `law(prefix)` gives the logits `(V,)` after a prefix of token ids."""

    law: Law
    vocab_size: int
    eos_ids: frozenset[int] = frozenset()
    max_length: int | None = None
    costs: Mapping[int, float] = field(factory=dict)
    device: str = "cpu"
    tokenizer: Any = None
    passes: int = field(default=0, init=False)
    open_sequences: int = field(default=0, init=False)

    def open(self, tokens: Sequence[int]) -> Opened:
        """Remember the prompt but its last token."""
        self.open_sequences += 1
        return Opened(ScriptedSequence(list(tokens[:-1])), {})

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Ask the law at the root and at every node."""
        self.passes += 1
        return [self._score(row) for row in rows]

    def commit(self, sequence: ScriptedSequence, path: Sequence[int]) -> None:
        """Keep the root and the path."""
        row = sequence.scored
        if row is None:
            raise ModelError("commit without a scored draft; score first")
        sequence.processed += [row.root, *(int(row.draft.tokens[node]) for node in path)]
        sequence.scored = None

    def close(self, sequence: ScriptedSequence) -> None:
        """Free the sequence."""
        if not sequence.closed:
            sequence.closed = True
            self.open_sequences -= 1

    def cost(self, nodes: int) -> float:
        """The scripted cost, or one second a pass."""
        return self.costs.get(nodes, 1.0)

    def _score(self, row: Row) -> Scores:
        sequence: ScriptedSequence = row.sequence
        sequence.scored = row
        prefix = (*sequence.processed, row.root)
        paths = [[], *(row.draft.path_to(node) for node in range(len(row.draft)))]
        tokens = row.draft.tokens.tolist()
        return Scores(_logits([self.law((*prefix, *(tokens[node] for node in path))) for path in paths]))


def _logits(rows: list[Sequence[float]]) -> Tensor:
    import torch

    return torch.tensor([list(row) for row in rows], dtype=torch.float64)
