"""The bound backend: a transformers model, what runs its passes, and the books that keep its KV cache in step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
import torch
from attrs import define, field

from draftmux.backends.masks import Feed
from draftmux.backends.self_check import check_trees
from draftmux.backends.support import Layout, layout
from draftmux.backends.taps import Recorder
from draftmux.cost_cache import remembered
from draftmux.costs import measure_backend
from draftmux.progress import working
from draftmux.protocols import Opened, Row
from draftmux.types import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.backends.cache import SlotCache
    from draftmux.costs import CostCurve
    from draftmux.types import Tap


class Runner(Protocol):
    """Runs passes of one model over its KV cache. How (masks, kernels, shapes) is its own business."""

    @property
    def cache(self) -> SlotCache: ...

    def width(self, rows: int) -> int:
        """How many rows a pass over that many takes, with padding."""
        ...

    def shapes(self, rows: int) -> Sequence[int]:
        """Numbers of rows of passes to try, so that all drafts of up to that many rows find their pass made."""
        ...

    def choose(self, curve_of: Callable[[str], CostCurve]) -> CostCurve | None:
        """Settle on one of several forms of its passes, if there are; `curve_of(form)` times the form set up now."""
        ...

    def idle(self) -> None:
        """No sequence is open any more."""
        ...

    def prefill(self, row: int, feed: Feed) -> dict[Tap, Tensor]:
        """Put a run of prompt tokens into the cache; taps `(n, d)`."""
        ...

    def run(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Logits `(rows, n, V)` and taps `(rows, n, d)` of cache rows `first`, …, each over its own feed.

        n is at least the widest feed's.
        """
        ...


class Options(Protocol):
    """Options that all backends of transformers models have."""

    @property
    def prefill_chunk(self) -> int: ...

    @property
    def self_check(self) -> bool: ...


@define(eq=False)
class SlotSequence:
    """Handle of one sequence: its row of the cache and how many slots of it are committed."""

    row: int
    length: int = 0
    closed: bool = False


@define(eq=False)
class Target:
    """Runs one model for many sequences. Open sequences occupy rows 0 to B-1; a gap is filled from the end."""

    model: Any
    runner: Runner
    recorder: Recorder
    options: Any = None  # of the backend
    prefill_chunk: int = 1024
    eos_ids: frozenset[int] = frozenset()
    tokenizer: Any = None
    exact: bool = field(default=False, init=False)  # whether a row has the same bits in every pass
    pristine: bool = field(default=True, init=False)  # whether `model` runs outside of here as transformers runs it
    _open: list[SlotSequence] = field(factory=list, init=False)
    cost_key: Mapping[str, Any] | None = field(default=None, init=False)  # None: costs are measured, and not kept
    _curve: CostCurve | None = field(default=None, init=False)

    @classmethod
    def over(
        cls, model: Any, make_runner: Callable[[Any, Layout, Recorder], Runner], taps: Sequence[Tap] = ()
    ) -> Target:
        """Wrap a loaded model; ModelError when its architecture cannot run draft trees, or lacks a tap."""
        shape = layout(model)
        recorder = Recorder()
        recorder.watch(model, taps)
        return cls(model, make_runner(model, shape, recorder), recorder)

    def ready(self, options: Options, eos_ids: frozenset[int] = frozenset(), tokenizer: Any = None) -> Target:
        """Set up for decoding, and try it on a small tree if `options` say so; ModelError when that goes wrong."""
        self.options, self.prefill_chunk, self.eos_ids, self.tokenizer = (
            options,
            options.prefill_chunk,
            eos_ids,
            tokenizer,
        )
        if options.self_check:
            check_trees(self)
        return self

    def beside(self, model: Any, taps: tuple[Tap, ...] = (), self_check: bool = True) -> Target:
        """Another model on a backend of the same kind: a draft model, or a head. Its numerics are the default ones."""
        changes = {"self_check": self_check and self.options.self_check, "numerics": "default"}
        known = {attribute.name for attribute in attrs.fields(type(self.options))}
        own: Any = attrs.evolve(self.options, **{name: value for name, value in changes.items() if name in known})
        beside: Target = own.over(model, taps=taps)
        return beside

    def share(self, other: Target) -> Target:
        """From now on read and write the sequences of `other`, whose keys and values are of the same shapes; itself.
        To be called before any pass."""
        self.runner.cache, self._open = other.runner.cache, other._open  # type: ignore[misc]
        return self

    @property
    def cache(self) -> SlotCache:
        """Keys and values of all open sequences."""
        return self.runner.cache

    @property
    def hidden_size(self) -> int:
        """Width of tapped states."""
        return int(self.model.config.get_text_config(decoder=True).hidden_size)

    @property
    def vocab_size(self) -> int:
        """Rows of the output layer; ids that the tokenizer does not use count too."""
        return int(self.model.config.get_text_config(decoder=True).vocab_size)

    @property
    def max_length(self) -> int | None:
        """Positions that the model was built for."""
        config = self.model.config.get_text_config(decoder=True)
        limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
        return int(limit) if limit else None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device  # type: ignore[no-any-return]

    def open(self, tokens: Sequence[int]) -> Opened:
        """Prefill all tokens but the last, in chunks."""
        sequence = SlotSequence(len(self._open))
        self._open.append(sequence)
        try:
            self.cache.reserve(len(self._open), len(tokens))  # at once: growing on the way would hold a second copy
            return Opened(sequence, self.fill(sequence, np.asarray(tokens[:-1], dtype=np.int64)))
        except BaseException:
            self.close(sequence)
            raise

    def fill(
        self, sequence: SlotSequence, tokens: NDArray[np.int64], states: Tensor | None = None
    ) -> dict[Tap, Tensor]:
        """Append tokens to a sequence's cache, in chunks; taps `(n, d)`. `states (n, d)` for models that read them."""
        none = torch.zeros(0, self.hidden_size, dtype=self.model.dtype, device=self.device)
        taps: list[Mapping[Tap, Tensor]] = []
        for at in range(0, len(tokens), self.prefill_chunk):
            chunk = slice(at, at + self.prefill_chunk)
            feed = Feed.run(tokens[chunk], sequence.length, None if states is None else states[chunk])
            taps.append(self._prefill(sequence.row, feed))
            sequence.length += len(feed.tokens)
        return {tap: torch.cat([none, *(chunk[tap] for chunk in taps)]) for tap in self.recorder.taps}

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """One pass over the roots and drafts of all `rows`."""
        feeds = [Feed.draft(row.root, row.draft.tokens, row.draft.parents, row.sequence.length) for row in rows]
        return self.forward([row.sequence for row in rows], feeds)

    def forward(self, sequences: Sequence[SlotSequence], feeds: Sequence[Feed]) -> list[Scores]:
        """One pass over a feed for each of some sequences. What it writes is scratch until a sequence's length says
        otherwise."""
        wanted = {sequence.row: feed for sequence, feed in zip(sequences, feeds, strict=True)}
        first, last = min(wanted), max(wanted) + 1
        idle = feeds[0].idle  # a sequence that sits this pass out feeds one token into its scratch slots
        filled = [wanted.get(row) or idle(self._open[row].length) for row in range(first, last)]
        logits, taps = self._pass(first, filled)
        return [
            Scores(
                logits[sequence.row - first, : len(feed.tokens)],
                {tap: states[sequence.row - first, : len(feed.tokens)] for tap, states in taps.items()},
            )
            for sequence, feed in zip(sequences, feeds, strict=True)
        ]

    @torch.inference_mode()
    def commit(self, sequence: SlotSequence, path: Sequence[int]) -> None:
        """Keep root and path: move the path's slots right behind the root's, wherever in the tree they stood."""
        start = sequence.length
        slots = [start + 1 + node for node in path]
        if slots != list(range(start + 1, start + 1 + len(slots))):
            self.cache.move(sequence.row, slots, start + 1)
        sequence.length = start + 1 + len(slots)

    @torch.inference_mode()
    def close(self, sequence: SlotSequence) -> None:
        """Free the row; the last row moves into the gap, so that open rows stay together."""
        if sequence.closed:
            return
        sequence.closed = True
        mover = self._open.pop()
        if mover is not sequence:
            self.cache.copy_row(mover.row, sequence.row, mover.length)
            mover.row = sequence.row
            self._open[mover.row] = mover
        if not self._open:
            self.runner.idle()

    def cost(self, nodes: int) -> float:
        """Seconds of a pass over root and `nodes` nodes at up to 256 tokens of context; measured on first use."""
        if self._curve is None:
            self._curve = self._measured()
        return self._curve.at(self.runner.width(nodes + 1))

    def _measured(self, **form: str) -> CostCurve:
        key = None if self.cost_key is None else {**self.cost_key, **form}
        return remembered(key, lambda: measure_backend(self))

    def warm_up(self, nodes: int) -> None:
        """Have passes compiled or captured for drafts of up to `nodes` nodes of a sequence; ModelError if one fails."""
        self._curve = self.runner.choose(lambda form: self._measured(form=form)) or self._curve
        shapes = self.runner.shapes(nodes + 1)
        if not shapes:
            return
        states = self.model.blank_states if hasattr(self.model, "blank_states") else lambda rows: None
        sequence = self.open([0, 0]).sequence
        try:
            for number, rows in enumerate(shapes, 1):
                with working(f"preparing passes of {rows} rows ({number} of {len(shapes)})"):
                    self.forward([sequence], [Feed.run(np.zeros(rows, dtype=np.int64), sequence.length, states(rows))])
        finally:
            self.close(sequence)

    @torch.inference_mode()
    def _prefill(self, row: int, feed: Feed) -> dict[Tap, Tensor]:
        return self.runner.prefill(row, feed)

    @torch.inference_mode()
    def _pass(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        return self.runner.run(first, feeds)
