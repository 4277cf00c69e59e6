"""Passes as captured CUDA graphs: one per number of rows, replayed over inputs that are written in place.

What changes from pass to pass (tokens, positions, lengths, ancestor bits) goes to the device in one copy from pinned
memory. What a graph has baked in are addresses: when the cache moves to a larger buffer, graphs are captured anew.
Where there is no CUDA (tests, in Triton's interpreter) the same passes run without capture.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import define, field, frozen

from draftmux.backends.cache import Placement, SlotCache
from draftmux.backends.h100.tree_attention import Workspace, ancestor_bits, tree_attention, write_slots
from draftmux.backends.masks import Feed, own_rows, stacked_states
from draftmux.backends.static import attention
from draftmux.backends.static.runner import SlotPass, merged, stacked
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.backends.support import Layout
    from draftmux.backends.taps import Recorder
    from draftmux.costs import CostCurve
    from draftmux.types import Tap

SPLIT = 256  # slots a program sums under exact numerics, whatever the capacity
BEYOND = 64  # drafts of more rows than the largest bucket are padded to a multiple of this
MOST_GRAPHS = 48  # each holds its own logits; the oldest is let go
WARM_UPS = 2  # passes before a capture: kernels are compiled and libraries allocate in them


@define(eq=False)
class Inputs:
    """What a pass of `batch` sequences and `rows` rows reads: one buffer on the host, one on the device, and views."""

    batch: int
    rows: int
    device: torch.device
    states: Tensor | None = None  # (batch, rows, d) on the device, for models that read more than tokens
    host: Tensor = field(init=False)
    buffer: Tensor = field(init=False)
    _sent: torch.cuda.Event | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        size = sum(self._sizes())
        self.host = torch.zeros(size, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        self.buffer = torch.zeros(size, dtype=torch.int32, device=self.device)

    def _sizes(self) -> tuple[int, ...]:
        cells = self.batch * self.rows
        return cells, cells, cells, cells * -(-self.rows // 32), self.batch

    def views(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Tokens, positions and depths `(B, N)`, ancestor bits `(B, N, words)`, committed lengths `(B,)`."""
        tokens, positions, depths, bits, starts = self.buffer.split(self._sizes())
        shape = (self.batch, self.rows)
        return tokens.view(shape), positions.view(shape), depths.view(shape), bits.view(*shape, -1), starts

    def send(self, feeds: Sequence[Feed]) -> None:
        """Put feeds of `rows` rows in place: one copy to the device, not waited for."""
        parts: list[NDArray[Any]] = [
            np.stack([feed.tokens for feed in feeds]),
            np.stack([feed.positions for feed in feeds]),
            np.stack([feed.depths for feed in feeds]),
            ancestor_bits(np.stack([feed.mask for feed in feeds])),
            np.array([feed.start for feed in feeds]),
        ]
        if self._sent is not None:
            self._sent.synchronize()  # the last copy still reads the host's buffer
        self.host.numpy()[:] = np.concatenate([part.reshape(-1) for part in parts])
        self.buffer.copy_(self.host, non_blocking=True)
        if self.states is not None:
            self.states.copy_(stacked_states(feeds)["states"])
        if self.device.type == "cuda":
            self._sent = torch.cuda.Event()
            self._sent.record()


@frozen(eq=False)
class KernelPass:
    """Attention of a captured pass: everything it reads is on the device and stays where it is."""

    cache: SlotCache
    layout: Layout
    first: int
    inputs: Inputs
    split: int | None
    workspace: dict[int, Workspace]  # by the width of values; made at the first launch, one for all launches

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, softcap: float) -> Tensor:
        """Store the new keys and values, and attend by ancestor bits; `(B, n, H, dv)`."""
        *_, depths, bits, starts = self.inputs.views()
        stored = self.cache.slot_layers[layer]
        if not stored.is_initialized:
            stored.lazy_initialization(key, value)
        write_slots(stored.keys, stored.values, key, value, starts, self.first)
        width = value.shape[3]
        if width not in self.workspace:
            shape = (*query.shape[:3], width)
            self.workspace[width] = Workspace.allocate(shape, self.cache.capacity, self.split, query.device)
        found = tree_attention(
            query,
            stored.keys,
            stored.values,
            starts,
            depths,
            bits,
            first=self.first,
            scale=scale,
            softcap=softcap or None,
            window=self.layout.window_of(self.layout.kind[layer]),
            split=self.split,
            workspace=self.workspace[width],
        )
        return found.transpose(1, 2)


@frozen(eq=False)
class Captured:
    """A graph with its inputs, and where its results stand after a replay."""

    inputs: Inputs
    this: KernelPass  # its workspace lies outside of the graph's own memory, and must live as long
    replay: Callable[[], None]
    logits: Tensor
    taps: dict[Tap, Tensor]


@define(eq=False)
class GraphRunner:
    """Pads every pass to a bucket and replays that bucket's graph. Wider ones get a graph of their own size."""

    model: Any
    layout: Layout
    recorder: Recorder
    buckets: tuple[int, ...]
    sequences: int = 1
    context: int = 4096
    exact: bool = False
    cache: SlotCache = field(init=False)
    _graphs: dict[tuple[int, int, int, bool], Captured] = field(factory=dict, init=False)
    _version: int = field(default=-1, init=False)
    _memory: Any = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        attention.use(self.model)
        self.cache = SlotCache(self.layout.layers, deferred=True)
        self.settle()

    def settle(self) -> None:
        """Begin with an empty cache of the size that was asked for."""
        self.cache.release()
        self.cache.reserve(self.sequences, self.context)

    def width(self, rows: int) -> int:
        """How many rows a pass over that many takes: those of a bucket, or of several passes."""
        if self.exact:
            return -(-rows // self.buckets[0]) * self.buckets[0]
        return self._bucket(rows)

    def _bucket(self, rows: int) -> int:
        return next((bucket for bucket in self.buckets if bucket >= rows), -(-rows // BEYOND) * BEYOND)

    def shapes(self, rows: int) -> Sequence[int]:
        """Every bucket up to the one that takes that many rows."""
        return [bucket for bucket in self.buckets if bucket <= self.width(rows)]

    def choose(self, curve_of: Callable[[str], CostCurve]) -> CostCurve | None:
        """Its passes have one form."""

    def idle(self) -> None:
        """Keeps cache and graphs: making them anew would cost the next request more than they take."""

    def prefill(self, row: int, feed: Feed) -> dict[Tap, Tensor]:
        """Put a run of prompt tokens into the cache, without a graph; taps `(n, d)`."""
        self.cache.aim(Placement(row, row + 1, (feed.slot,), len(feed.tokens)))
        this = SlotPass(self.cache, self.layout, [feed], self.model.dtype, self.model.device, plain_run=True)
        tokens, positions = (torch.from_numpy(ids[None]).to(self.model.device) for ids in (feed.tokens, feed.positions))
        states = stacked_states([feed]).get("states")
        self._forward(this, tokens, positions, logits_to_keep=1, states=states)
        return {tap: states[0] for tap, states in self.recorder.take().items()}

    def run(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Logits `(rows, n, V)` and taps `(rows, n, d)`, valid until the next pass."""
        if self.exact:  # a batch would be another shape
            found = [self._exactly(first + i, feed) for i, feed in enumerate(feeds)]
            return stacked([logits for logits, _ in found]), merged([taps for _, taps in found], stacked)
        logits, taps = self._padded(first, [feed.whole or feed for feed in feeds])  # the kernel takes whole trees
        return own_rows(feeds, logits), {tap: own_rows(feeds, states) for tap, states in taps.items()}

    def _exactly(self, row: int, feed: Feed) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Logits `(m, V)` and taps of one sequence in passes of one size. Columns are summed by slot, so a path of a
        tree that leaves a gap in the slots is not summed as plain decoding sums it."""
        chain = bool((feed.depths == np.arange(len(feed.depths))).all())
        if not chain:
            warnings.warn("numerics: exact holds for chains on h100; draft trees may change the text", stacklevel=2)
        size = self.buckets[0]
        parts = [feed] if not chain else [Feed.run(f.tokens, f.slot) for f in feed.pieces(size)]
        found = [_own(*self._padded(row, [part])) for part in parts]
        return torch.cat([logits for logits, _ in found]), merged([taps for _, taps in found], torch.cat)

    def _padded(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        width = self._bucket(max(len(feed.tokens) for feed in feeds))
        with torch.cuda.device(self.model.device) if self.model.device.type == "cuda" else nullcontext():
            return self._replay(first, [feed.padded(width) for feed in feeds])

    def _replay(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        rows = len(feeds[0].tokens)
        self.cache.aim(Placement(first, first + len(feeds), tuple(feed.slot for feed in feeds), rows))
        if self._version != self.cache.version:
            self._graphs.clear()
            self._memory = None  # a pool that no graph uses any more cannot be captured into
            self._version = self.cache.version
        key = (first, len(feeds), rows, feeds[0].states is None)
        if key not in self._graphs:
            if len(self._graphs) == MOST_GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[key] = self._captured(first, feeds)
            self._version = self.cache.version  # the first pass of all makes the buffers
        graph = self._graphs[key]
        graph.inputs.send(feeds)
        graph.replay()
        return graph.logits, graph.taps

    def _captured(self, first: int, feeds: Sequence[Feed]) -> Captured:
        try:
            return self._capture(first, feeds)
        except Exception as error:
            raise ModelError(
                f"{type(self.model).__name__}: a pass of {len(feeds[0].tokens)} rows is not captured as a CUDA graph: "
                f"{' '.join(str(error).split())[:300]}; use `backend: {{use: static}}`"
            ) from error

    def _capture(self, first: int, feeds: Sequence[Feed]) -> Captured:
        device = self.model.device
        inputs = Inputs(len(feeds), len(feeds[0].tokens), device, stacked_states(feeds).get("states"))
        inputs.send(feeds)  # a pass over real lengths, since it writes into the cache
        this = KernelPass(self.cache, self.layout, first, inputs, SPLIT if self.exact else None, {})
        forward = partial(self._forward, this, *inputs.views()[:2], states=inputs.states)
        if device.type != "cuda":
            return self._uncaptured(inputs, this, forward)
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                forward()
        torch.cuda.current_stream(device).wait_stream(side)
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile: only what this one does must fit into a graph.
        with torch.cuda.graph(graph, pool=self._memory, capture_error_mode="thread_local"):
            logits = forward()
            taps = self.recorder.take()
        return Captured(inputs, this, graph.replay, logits, taps)

    def _uncaptured(self, inputs: Inputs, this: KernelPass, forward: Callable[[], Tensor]) -> Captured:
        logits = forward()
        taps = self.recorder.take()

        def replay() -> None:
            logits.copy_(forward())
            for tap, states in self.recorder.take().items():
                taps[tap].copy_(states)

        return Captured(inputs, this, replay, logits, taps)

    def _forward(
        self,
        this: attention.Pass,
        tokens: Tensor,
        positions: Tensor,
        logits_to_keep: int = 0,
        states: Tensor | None = None,
    ) -> Tensor:
        extra = {} if states is None else {"states": states}
        with attention.running(this), self.recorder.recording():
            return self.model(  # type: ignore[no-any-return]
                input_ids=tokens,
                position_ids=positions,
                cache=self.cache,
                use_cache=True,
                logits_to_keep=logits_to_keep,
                **extra,
            ).logits


def _own(logits: Tensor, taps: dict[Tap, Tensor]) -> tuple[Tensor, dict[Tap, Tensor]]:
    """Results of one sequence that the next replay does not overwrite."""
    return logits[0].clone(), {tap: states[0].clone() for tap, states in taps.items()}
