"""Passes over static slots with an attention of our own: no padding, no repeated keys, masks made once a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import define, field
from torch.nn.utils.rnn import pad_sequence

from draftmux.backends.cache import Placement, SlotCache
from draftmux.backends.masks import Feed, attention_mask, stacked_states
from draftmux.backends.static import attention
from draftmux.backends.static.compiling import LEAST_ROWS, Compiled, seconds
from draftmux.backends.static.exact import ExactPass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from draftmux.backends.static.compiling import Compilation
    from draftmux.backends.support import Layout
    from draftmux.backends.taps import Recorder
    from draftmux.costs import CostCurve
    from draftmux.types import Tap


@define(eq=False)
class SlotPass:
    """One pass: where it writes, and what its rows may see in layers of each kind."""

    cache: SlotCache
    layout: Layout
    feeds: Sequence[Feed]
    dtype: torch.dtype
    device: torch.device
    plain_run: bool = False  # the feed is a run of tokens, no tree
    _masks: dict[str, Tensor | None] = field(factory=dict, init=False)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, softcap: float) -> Tensor:
        """Store the new keys and values, and attend to all that each row may see."""
        keys, values = self.cache.slot_layers[layer].store(key, value)
        if self._is_run(self.layout.window_of(self.layout.kind[layer])) and not softcap:
            return attention.causal_attention(query, keys, values, scale)
        mask = self._mask(self.layout.kind[layer])
        return attention.masked_attention(query, keys, values, mask, scale, softcap)

    def _is_run(self, window: int | None) -> bool:
        """Whether the pass is the beginning of one sequence, and all of it in view."""
        first = self.feeds[0]
        return self.plain_run and len(self.feeds) == 1 and not first.slot and (window or first.end) >= first.end

    def _mask(self, kind: str) -> Tensor | None:
        """Additive, `(B, 1, n, extent)`; None where all rows see everything."""
        if kind not in self._masks:
            visible = attention_mask(self.feeds, self.layout.window_of(kind))
            seen = torch.from_numpy(visible).to(self.device, non_blocking=True)
            self._masks[kind] = None if visible.all() else attention.additive(seen, self.dtype)
        return self._masks[kind]


@define(eq=False)
class SlotRunner:
    """One model call a pass. `call` is the model, or a compiled form of it."""

    model: Any
    layout: Layout
    recorder: Recorder
    exact_rows: int = 0  # rows of every pass, if each is to have the same; see the module `exact`
    compile: Compilation = False
    call: Callable[..., Any] = field(init=False)
    cache: SlotCache = field(init=False)
    _chosen: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        attention.use(self.model)
        self.call = Compiled(self.model) if self.compile is True else self.model
        self.cache = SlotCache(self.layout.layers, deferred=True)

    def width(self, rows: int) -> int:
        """How many rows a pass over that many takes."""
        return -(-rows // self.exact_rows) * self.exact_rows if self.exact_rows else rows

    def shapes(self, rows: int) -> Sequence[int]:
        """One, if passes are compiled: it serves all."""
        return (LEAST_ROWS,) if self._compiled else ()

    @property
    def _compiled(self) -> bool:
        return isinstance(self.call, Compiled)

    def choose(self, curve_of: Callable[[str], CostCurve]) -> CostCurve | None:
        """Under `compile: auto`, the faster of eager and compiled passes from now on, by their curves."""
        if self.compile != "auto" or self._chosen:
            return None
        self._chosen = True
        eager = curve_of("eager")
        self.call = Compiled(self.model, optional=True)
        compiled = curve_of("compiled")
        if seconds(compiled) < seconds(eager):
            return compiled
        self.call = self.model
        return eager

    def idle(self) -> None:
        """Gives the cache's memory back."""
        self.cache.release()

    def prefill(self, row: int, feed: Feed) -> dict[Tap, Tensor]:
        """Put a run of prompt tokens into the cache; taps `(n, d)`."""
        self._aim(row, [feed])
        this = SlotPass(self.cache, self.layout, [feed], self.model.dtype, self.model.device, plain_run=True)
        _, taps = self._forward(self.model, [feed], this, logits_to_keep=1)
        return {tap: states[0] for tap, states in taps.items()}

    def run(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Logits `(rows, n, V)` and taps `(rows, n, d)`, n the widest feed's."""
        if self.exact_rows:
            found = [self._exactly(first + i, feed) for i, feed in enumerate(feeds)]
            return stacked([logits for logits, _ in found]), merged([taps for _, taps in found], stacked)
        width = max(LEAST_ROWS if self._compiled else 1, *(len(feed.tokens) for feed in feeds))
        feeds = [feed.padded(width) for feed in feeds]
        self._aim(first, feeds)
        return self._forward(self.call, feeds, self._pass(feeds))

    def _exactly(self, row: int, feed: Feed) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Logits `(m, V)` and taps of one sequence, m at least its feed's size, in passes of one size."""
        found = []
        for part in feed.pieces(self.exact_rows):
            piece = part.padded(self.exact_rows)
            self._aim(row, [piece])
            this = ExactPass.of(self.cache, self.layout, piece, self.model.device)
            found.append(self._forward(self.call, [piece], this))
        return torch.cat([logits[0] for logits, _ in found]), merged([taps for _, taps in found], _joined)

    def _aim(self, first: int, feeds: Sequence[Feed]) -> None:
        self.cache.aim(Placement(first, first + len(feeds), tuple(f.slot for f in feeds), len(feeds[0].tokens)))

    def _pass(self, feeds: Sequence[Feed]) -> SlotPass:
        return SlotPass(self.cache, self.layout, feeds, self.model.dtype, self.model.device)

    def _forward(
        self, call: Callable[..., Any], feeds: Sequence[Feed], this: attention.Pass, logits_to_keep: int = 0
    ) -> tuple[Tensor, dict[Tap, Tensor]]:
        with attention.running(this), self.recorder.recording():
            output = call(
                input_ids=self._tensor([feed.tokens for feed in feeds]),
                position_ids=self._tensor([feed.positions for feed in feeds]),
                cache=self.cache,
                use_cache=True,
                logits_to_keep=logits_to_keep,
                **stacked_states(feeds),
            )
        return output.logits, self.recorder.take()

    def _tensor(self, rows: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> Tensor:
        return torch.from_numpy(np.stack(rows)).to(self.model.device, non_blocking=True)


def merged(parts: Sequence[dict[Tap, Tensor]], merge: Callable[[list[Tensor]], Tensor]) -> dict[Tap, Tensor]:
    """Taps of several passes as one."""
    return {tap: merge([taps[tap] for taps in parts]) for tap in parts[0]}


def _joined(pieces: list[Tensor]) -> Tensor:
    """Pieces `(1, n, d)` of one sequence, one after the other: `(m, d)`."""
    return torch.cat(pieces, 1)[0]


def stacked(rows: list[Tensor]) -> Tensor:
    """Rows of different length, padded: `(rows, n, d)`."""
    return rows[0][None] if len(rows) == 1 else pad_sequence(rows, batch_first=True)
