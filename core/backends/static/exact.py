"""Attention whose every sum is made in one order, so that a row's result depends on its own prefix alone.

A row at position p gets the same bits whether plain decoding scored it, as the root, or a tree did, as a node. Its
prefix is cut at multiples of `BLOCK` positions. Blocks before p's own are attended to where they stand in the cache
(or gathered, if the row's path through a tree makes up part of them); p's own block is gathered for every row, in
logical order. Blocks are added up one after the other. What a row does not see adds exactly nothing: weight 0, in a
place that no other sum is rounded with. Products are made in float32 (float64 for float64 models).

This holds as long as the matrix products of the machine give a row the same bits wherever it stands in a pass of fixed
size; `tests/backends/test_exact.py` and the self-check of the backend try that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import define, frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.backends.cache import SlotCache
    from draftmux.backends.masks import Feed
    from draftmux.backends.support import Layout

BLOCK = 64


@frozen(eq=False)
class Paths:
    """Where the keys of each row stand, in logical order.

    `own (n, BLOCK)`: slots of the positions of its own block. `shared (b, BLOCK)`: slots of the blocks before; the
    first `whole` are the cache's own first slots. `sees (n, b)`: which of them are on the row's path.
    """

    own: Tensor
    shared: Tensor
    sees: Tensor
    logical: Tensor  # (b,): number of each shared block, in units of BLOCK positions
    whole: int

    @classmethod
    def of(cls, feed: Feed, device: torch.device) -> Paths:
        """Of a feed; slots that a row has not reached are its own."""
        rows = [_slots(feed, row) for row in range(len(feed.tokens))]
        whole = feed.start // BLOCK
        blocks: dict[tuple[int, ...], int] = {
            tuple(range(number * BLOCK, (number + 1) * BLOCK)): number for number in range(whole)
        }
        logical = list(range(whole))
        sees: list[list[int]] = []
        for slots in rows:
            seen = list(range(whole))
            for number in range(whole, (len(slots) - 1) // BLOCK):
                block = tuple(slots[number * BLOCK : (number + 1) * BLOCK].tolist())
                if block not in blocks:
                    blocks[block] = len(blocks)
                    logical.append(number)
                seen.append(blocks[block])
            sees.append(seen)
        return cls(
            torch.from_numpy(np.stack([_own_block(slots) for slots in rows])).to(device),
            torch.tensor(list(blocks), dtype=torch.int64, device=device).reshape(-1, BLOCK),
            _one_hot(sees, len(blocks)).to(device),
            torch.tensor(logical, dtype=torch.int64, device=device),
            whole,
        )


def _slots(feed: Feed, row: int) -> NDArray[np.int64]:
    """Slots of all positions up to a row's own, in order."""
    path = np.flatnonzero(feed.mask[row])  # ancestors come before their descendants
    return np.concatenate((np.arange(feed.start), feed.start + path))


def _own_block(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    last = slots[(len(slots) - 1) // BLOCK * BLOCK :]
    return np.concatenate((last, np.full(BLOCK - len(last), last[-1])))


def _one_hot(seen: list[list[int]], width: int) -> Tensor:
    found = torch.zeros(len(seen), width, dtype=torch.bool)
    for row, blocks in enumerate(seen):
        found[row, blocks] = True
    return found


@define(eq=False)
class ExactPass:
    """One pass of one sequence: a feed whose size is the same for all passes."""

    cache: SlotCache
    layout: Layout
    feed: Feed
    paths: Paths
    positions: Tensor  # (n,)

    @classmethod
    def of(cls, cache: SlotCache, layout: Layout, feed: Feed, device: torch.device) -> ExactPass:
        """Over a feed."""
        return cls(cache, layout, feed, Paths.of(feed, device), torch.from_numpy(feed.positions).to(device))

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, softcap: float) -> Tensor:
        """Store the new keys and values, and attend to each row's path in logical order; `(1, n, H, dv)`."""
        self.cache.slot_layers[layer].store(key, value)
        row = self.cache.placement.first
        keys, values = (
            buffer[row] for buffer in (self.cache.slot_layers[layer].keys, self.cache.slot_layers[layer].values)
        )
        wide = torch.promote_types(query.dtype, torch.float32)
        heads, rows, width = query.shape[1:]
        grouped = query[0].to(wide).reshape(keys.shape[0], heads // keys.shape[0], rows, width) * scale  # (K, G, n, d)
        window = self.layout.window_of(self.layout.kind[layer])
        parts = [
            *self._before(grouped, keys, values, softcap, window),
            self._own(grouped, keys, values, softcap, window),
        ]
        found = _combined(parts).to(query.dtype)  # (K, G, n, dv)
        return found.reshape(1, heads, rows, values.shape[2]).transpose(1, 2).contiguous()

    def _before(
        self, query: Tensor, keys: Tensor, values: Tensor, softcap: float, window: int | None
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Of every block before the rows' own: largest score, sum of weights, weighted values."""
        count = len(self.paths.shared)
        if not count:
            return []
        heads, groups, rows, width = query.shape
        packed = query.reshape(heads, 1, groups * rows, width)
        key, value = (self._blocks(states).to(query.dtype) for states in (keys, values))  # (K, b, BLOCK, d)
        scores = _capped(packed @ key.mT, softcap).reshape(heads, count, groups, rows, BLOCK)
        held = self.paths.logical[:, None] * BLOCK + torch.arange(BLOCK, device=query.device)  # (b, BLOCK)
        seen = self.paths.sees.T[:, :, None].expand(count, rows, BLOCK)
        if window is not None:
            seen = seen & (self.positions[None, :, None] - held[:, None, :] < window)
        best, law = _weights(scores, seen[:, None])
        mixed = (law.reshape(heads, count, groups * rows, BLOCK) @ value).reshape(heads, count, groups, rows, -1)
        total = law.sum(-1)
        return [(best[:, b], total[:, b], mixed[:, b]) for b in self._order()]

    def _order(self) -> list[int]:
        """Shared blocks by their logical number, so that every row adds up its own in order."""
        return sorted(range(len(self.paths.logical)), key=self.paths.logical.tolist().__getitem__)

    def _blocks(self, states: Tensor) -> Tensor:
        """`(K, b, BLOCK, d)`."""
        whole = states[:, : self.paths.whole * BLOCK].unflatten(1, (self.paths.whole, BLOCK))
        extra = self.paths.shared[self.paths.whole :]
        return whole if not len(extra) else torch.cat((whole, states[:, extra]), 1)

    def _own(
        self, query: Tensor, keys: Tensor, values: Tensor, softcap: float, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of each row's own block."""
        key, value = (states[:, self.paths.own].to(query.dtype) for states in (keys, values))  # (K, n, BLOCK, d)
        scores = _capped(query.transpose(1, 2) @ key.mT, softcap)  # (K, n, G, BLOCK)
        held = self.positions[:, None] // BLOCK * BLOCK + torch.arange(BLOCK, device=query.device)  # (n, BLOCK)
        seen = held <= self.positions[:, None]
        if window is not None:
            seen = seen & (self.positions[:, None] - held < window)
        best, law = _weights(scores, seen[:, None])
        found = best, law.sum(-1), law @ value
        return found[0].transpose(1, 2), found[1].transpose(1, 2), found[2].transpose(1, 2)


def _capped(scores: Tensor, softcap: float) -> Tensor:
    return softcap * torch.tanh(scores / softcap) if softcap else scores


def _weights(scores: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The largest visible score of each row and block, and weights relative to it; where nothing is seen, all are 0."""
    scores = scores.masked_fill(~seen, -torch.inf)
    best = scores.amax(-1)
    return best, (scores - best.nan_to_num(neginf=0.0)[..., None]).exp()


def _combined(parts: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The softmax-weighted values of all blocks, added up one by one."""
    top = torch.stack([best for best, _, _ in parts]).amax(0)
    total = torch.zeros_like(parts[0][1])
    mixed = torch.zeros_like(parts[0][2])
    for best, weight, value in parts:
        scale = (best - top).exp()
        total = total + scale * weight
        mixed = mixed + scale[..., None] * value
    return mixed / total[..., None]
