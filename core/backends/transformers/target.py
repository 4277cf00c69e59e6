"""The bound backend: a transformers model, its KV cache, and the books that keep both in step."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import define, field

from draftmux.backends.transformers.cache import Placement, SlotCache
from draftmux.backends.transformers.masks import Feed, attention_mask
from draftmux.backends.transformers.support import Layout, layout, tolerance, tree_error
from draftmux.backends.transformers.taps import Recorder
from draftmux.errors import ModelError
from draftmux.protocols import Opened, Row
from draftmux.types import Draft, Scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from draftmux.backends.transformers.backend import TransformersBackend
    from draftmux.types import Tap

COST_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
COST_CONTEXT = 256


@define(eq=False)
class SlotSequence:
    """Handle of one sequence: its row of the cache and how many slots of it are committed."""

    row: int
    length: int = 0
    closed: bool = False


@define(eq=False)
class TransformersTarget:
    """Runs one model for many sequences. Open sequences occupy rows 0 to B-1; a gap is filled from the end."""

    model: Any
    layout: Layout
    eos_ids: frozenset[int]
    tokenizer: Any
    recorder: Recorder
    prefill_chunk: int
    additive: bool  # eager attention adds its mask, and would add booleans as 0 and 1
    cache: SlotCache = field(init=False)
    _open: list[SlotSequence] = field(factory=list, init=False)
    _costs: dict[int, float] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.cache = SlotCache(self.layout.layers)

    @classmethod
    def build(
        cls, options: TransformersBackend, model: Any, eos_ids: frozenset[int], tokenizer: Any, taps: Sequence[Tap] = ()
    ) -> TransformersTarget:
        """Wrap a loaded model; ModelError when it cannot run draft trees or lacks a tap."""
        shape = layout(model)
        _set_attention(model, options.attention)
        recorder = Recorder()
        recorder.watch(model, taps)
        eager = options.attention == "eager"
        target = cls(model, shape, eos_ids, tokenizer, recorder, options.prefill_chunk, eager)
        if options.self_check:
            target.check_trees()
        return target

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
        fed = np.asarray(tokens[:-1], dtype=np.int64)
        taps: list[Mapping[Tap, Tensor]] = []
        try:
            for start in range(0, len(fed), self.prefill_chunk):
                feed = Feed.run(fed[start : start + self.prefill_chunk], start)
                taps.append(self._forward(sequence.row, [feed], logits_to_keep=1)[1])
                sequence.length += len(feed.tokens)
        except BaseException:
            self.close(sequence)
            raise
        none = torch.zeros(0, self.hidden_size, dtype=self.model.dtype, device=self.device)
        return Opened(sequence, {tap: torch.cat([none, *(c[tap][0] for c in taps)]) for tap in self.recorder.taps})

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """One pass over the roots and drafts of all `rows`."""
        wanted = {row.sequence.row: i for i, row in enumerate(rows)}
        first, last = min(wanted), max(wanted) + 1
        feeds = [self._feed(rows[wanted[r]] if r in wanted else None, r) for r in range(first, last)]
        width = max(len(feed.tokens) for feed in feeds)
        logits, taps = self._forward(first, [feed.padded(width) for feed in feeds])
        return [self._scores(row, row.sequence.row - first, logits, taps) for row in rows]

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
            self.cache.release()

    def cost(self, nodes: int) -> float:
        """Seconds of a pass over root and `nodes` nodes at up to 256 tokens of context; measured on first use."""
        if not self._costs:
            self._costs = self._measure()
        return float(np.interp(nodes + 1, list(self._costs), list(self._costs.values())))

    def check_trees(self) -> None:
        """Compare a tree pass and its compaction with sequential decoding; ModelError when they disagree."""
        name = type(self.model).__name__
        try:
            error = self._tree_error()
        except Exception as fault:
            raise ModelError(f"{name} fails on a draft tree, so it cannot be a target: {fault}") from fault
        if not error <= tolerance(self.model.dtype):
            raise ModelError(
                f"{name}: logits of a draft tree differ from sequential decoding by {error:.2g} (relative; "
                f"{tolerance(self.model.dtype):.0e} is allowed in {self.model.dtype}), so speculation would change the "
                f"text. The architecture does not follow the attention mask or position ids it is given. If you know "
                f"better: `backend: {{use: transformers, self_check: false}}`"
            )

    def _tree_error(self) -> float:
        tokens = np.random.default_rng(0).integers(0, self.vocab_size, 9).tolist()
        draft = Draft([tokens[5], tokens[6], tokens[7], tokens[8]], [-1, -1, 1, 2])
        opened = self.open(tokens[:5]).sequence
        tree = self.score([Row(opened, tokens[4], draft)])[0].logits[[0, 2, 3, 4]]
        self.commit(opened, [1, 2])
        after = self.score([Row(opened, tokens[8], Draft.empty())])[0].logits
        self.close(opened)
        plain = self._plain_logits([*tokens[:5], *tokens[6:]])[4:]
        return tree_error(torch.cat((tree, after)), torch.cat((plain, plain[-1:])))

    def _plain_logits(self, tokens: list[int]) -> Tensor:
        """Logits of decoding one token after the other, `(T, V)`."""
        opened = self.open(tokens[:1]).sequence
        rows = []
        for token in tokens:
            rows.append(self.score([Row(opened, token, Draft.empty())])[0].logits)
            self.commit(opened, ())
        self.close(opened)
        return torch.cat(rows)

    def _measure(self) -> dict[int, float]:
        room = self.max_length or COST_CONTEXT + COST_ROWS[-1]
        sequence = self.open([0] * max(1, min(COST_CONTEXT, room - COST_ROWS[-1]))).sequence
        costs: dict[int, float] = {}
        try:
            for rows in [rows for rows in COST_ROWS if rows <= room]:
                row = Row(sequence, 0, Draft.chain([0] * (rows - 1)))
                costs[rows] = statistics.median(self._timed(row) for _ in range(3))
        finally:
            self.close(sequence)
        return costs

    def _timed(self, row: Row) -> float:
        started = time.perf_counter()
        self.score([row])[0].logits[0, 0].item()  # waits for the device
        return time.perf_counter() - started

    def _feed(self, row: Row | None, index: int) -> Feed:
        """A row's root and draft; a sequence that sits this pass out feeds one token into its scratch slots."""
        start = self._open[index].length
        if row is None:
            return Feed.run(np.zeros(1, dtype=np.int64), start)
        return Feed.draft(row.root, row.draft.tokens, row.draft.parents, start)

    @torch.inference_mode()
    def _forward(self, first: int, feeds: list[Feed], logits_to_keep: int = 0) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Run the model over feeds of one width for rows `first`, …; logits `(rows, n, V)` and taps `(rows, n, d)`."""
        place = Placement(first, first + len(feeds), tuple(feed.start for feed in feeds), len(feeds[0].tokens))
        self.cache.reserve(first + len(feeds), place.extent)
        self.cache.placement = place
        output = self.model(
            input_ids=self._tensor(np.stack([feed.tokens for feed in feeds])),
            position_ids=self._tensor(np.stack([feed.positions for feed in feeds])),
            attention_mask=self._masks(feeds),
            cache=self.cache,
            use_cache=True,
            logits_to_keep=logits_to_keep,
        )
        return output.logits, self.recorder.take()

    def _masks(self, feeds: list[Feed]) -> Any:
        """One mask, or one per kind of layer when the model mixes them."""
        windows = {"full_attention": None, "sliding_attention": self.layout.window}
        masks = {kind: self._mask(attention_mask(feeds, windows[kind])) for kind in self.layout.kinds}
        return masks if self.layout.mask_per_kind else next(iter(masks.values()))

    def _mask(self, visible: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        mask = self._tensor(visible)
        if not self.additive:
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=self.device).masked_fill(~mask, lowest)

    def _tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _scores(self, row: Row, index: int, logits: Tensor, taps: Mapping[Tap, Tensor]) -> Scores:
        count = len(row.draft) + 1
        return Scores(logits[index, :count], {tap: states[index, :count] for tap, states in taps.items()})


def _set_attention(model: Any, implementation: str) -> None:
    try:
        model.set_attn_implementation(implementation)
    except (ValueError, ImportError) as error:
        other = "eager" if implementation != "eager" else "sdpa"
        raise ModelError(
            f"{type(model).__name__} does not support attention '{implementation}'; "
            f"try `backend: {{use: transformers, attention: {other}}}`"
        ) from error
