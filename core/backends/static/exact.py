"""Attention whose every sum is made in one order, so that a row's result depends on its own prefix alone.

A row at position p gets the same bits whether plain decoding scored it, as the root, or a tree did, as a node. Its
prefix is cut at multiples of `BLOCK` positions. Blocks before p's own are attended to where they stand in the cache
(or gathered, if the row's path through a tree makes up part of them); p's own block is gathered for every row, in
logical order. Blocks are added up one after the other. What a row does not see adds exactly nothing: weight 0, in a
place that no other sum is rounded with. Products are made in float32 (float64 for float64 models).

Every pass has the same number of rows, so every product has one shape. What is left to believe is that a row's bits do
not depend on where it stands in a pass, and on no other row; the backend's self-check compares bits at load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import define, field, frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.backends.cache import SlotCache
    from draftmux.backends.masks import Feed
    from draftmux.backends.support import Layout

BLOCK = 64
BUNDLE = 4  # blocks that are multiplied together: always as many, since kernels may depend on their number


@frozen(eq=False)
class Paths:
    """Where the keys of each row stand, in logical order.

    `own (n, BLOCK)`: slots of the positions of its own block; what a row has not reached is its own slot. The blocks
    before are the first `whole` of the cache, where slot = position, and `extra (e, BLOCK)`: slots of blocks that paths
    through the tree make up. `sees (n, whole + e)`: which of them are on the row's path. `logical (whole + e,)`: their
    numbers, in units of BLOCK positions, which they are added up by.
    """

    whole: int
    own: Tensor
    extra: Tensor
    sees: Tensor
    logical: list[int]

    @classmethod
    def of(cls, feed: Feed, device: torch.device) -> Paths:
        """Of a feed."""
        whole = feed.start // BLOCK
        own, extra = [], dict[tuple[int, ...], int]()
        logical = list(range(whole))
        sees = np.ones((len(feed.tokens), whole), dtype=np.bool_)
        for row in range(len(feed.tokens)):
            slots = _slots(feed, row, whole)
            own.append(_own_block(slots))
            for block in range((len(slots) - 1) // BLOCK):
                key = tuple(slots[block * BLOCK : (block + 1) * BLOCK].tolist())
                if key not in extra:
                    extra[key] = len(logical)
                    logical.append(whole + block)
                    sees = np.pad(sees, ((0, 0), (0, 1)))
                sees[row, extra[key]] = True
        return cls(
            whole,
            torch.from_numpy(np.stack(own)).to(device),
            torch.tensor([list(key) for key in extra], dtype=torch.int64, device=device).reshape(-1, BLOCK),
            torch.from_numpy(sees).to(device),
            logical,
        )


def _slots(feed: Feed, row: int, whole: int) -> NDArray[np.int64]:
    """Slots of the positions from block `whole` on up to a row's own, in order."""
    path = np.flatnonzero(feed.mask[row])  # ancestors come before their descendants
    return np.concatenate((np.arange(whole * BLOCK, feed.start), feed.start + path))


def _own_block(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    last = slots[(len(slots) - 1) // BLOCK * BLOCK :]
    return np.concatenate((last, np.full(BLOCK - len(last), last[-1])))


@define(eq=False)
class ExactPass:
    """One pass of one sequence: a feed whose size is the same for all passes."""

    cache: SlotCache
    layout: Layout
    feed: Feed
    paths: Paths
    positions: Tensor  # (n,)
    _seen: dict[int | None, tuple[Tensor, Tensor]] = field(factory=dict, init=False)

    @classmethod
    def of(cls, cache: SlotCache, layout: Layout, feed: Feed, device: torch.device) -> ExactPass:
        """Over a feed."""
        return cls(cache, layout, feed, Paths.of(feed, device), torch.from_numpy(feed.positions).to(device))

    def seen(self, window: int | None) -> tuple[Tensor, Tensor]:
        """What each row sees of the blocks before its own, `(b, n, BLOCK)`, and of its own, `(n, BLOCK)`."""
        if window not in self._seen:
            within = torch.arange(BLOCK, device=self.positions.device)
            numbers = torch.tensor(self.paths.logical, dtype=torch.int64, device=within.device)
            before = numbers[:, None, None] * BLOCK + within - self.positions[:, None]  # (b, n, BLOCK), below 0
            own = within - self.positions[:, None] % BLOCK
            near = -window if window is not None else torch.iinfo(torch.int64).min
            self._seen[window] = self.paths.sees.T[:, :, None] & (before > near), (own <= 0) & (own > near)
        return self._seen[window]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float, softcap: float) -> Tensor:
        """Store the new keys and values, and attend to each row's path in logical order; `(1, n, H, dv)`."""
        stored, row = self.cache.slot_layers[layer], self.cache.placement.first
        stored.store(key, value)
        keys, values = stored.keys[row], stored.values[row]
        wide = torch.promote_types(query.dtype, torch.float32)
        heads, rows, width = query.shape[1:]
        grouped = query[0].to(wide).reshape(keys.shape[0], heads // keys.shape[0], rows, width) * scale  # (K, G, n, d)
        window = self.layout.window_of(self.layout.kind[layer])
        operands = (grouped, keys, values, softcap, window)
        found = _combined([*self._before(*operands), self._own(*operands)]).to(query.dtype)  # (K, G, n, dv)
        return found.reshape(1, heads, rows, values.shape[2]).transpose(1, 2).contiguous()

    def _before(
        self, query: Tensor, keys: Tensor, values: Tensor, softcap: float, window: int | None
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Of every block before the rows' own: largest score, sum of weights, weighted values."""
        count = len(self.paths.logical)
        if not count:
            return []
        seen = self.seen(window)[0]
        key, value = (self._bundles(states, query.dtype) for states in (keys, values))  # (K, BUNDLE, BLOCK, d) each
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for first, here in enumerate(zip(key, value, strict=True)):
            found += _block_sums(query, *here, softcap, seen[first * BUNDLE : (first + 1) * BUNDLE])
        return [found[block] for block in sorted(range(count), key=self.paths.logical.__getitem__)]

    def _bundles(self, states: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The blocks before the rows' own, in bundles of one size; what is left of the last one is zero."""
        count = len(self.paths.logical)
        whole = self.paths.whole
        padded = -(-count // BUNDLE) * BUNDLE
        found = torch.zeros(len(states), padded, BLOCK, states.shape[2], dtype=dtype, device=states.device)
        found[:, :whole] = states[:, : whole * BLOCK].unflatten(1, (whole, BLOCK)) if whole else 0
        found[:, whole:count] = states[:, self.paths.extra]
        return tuple(found.split(BUNDLE, 1))

    def _own(
        self, query: Tensor, keys: Tensor, values: Tensor, softcap: float, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of each row's own block."""
        key, value = (states[:, self.paths.own].to(query.dtype) for states in (keys, values))  # (K, n, BLOCK, d)
        scores = _capped(query.transpose(1, 2) @ key.mT, softcap)  # (K, n, G, BLOCK)
        best, law = _weights(scores, self.seen(window)[1][:, None])
        found = best, law.sum(-1), law @ value
        return found[0].transpose(1, 2), found[1].transpose(1, 2), found[2].transpose(1, 2)


def _block_sums(
    query: Tensor, key: Tensor, value: Tensor, softcap: float, seen: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each block of a bundle that there is: largest score, sum of weights, weighted values."""
    heads, groups, rows, width = query.shape
    packed = query.reshape(heads, 1, groups * rows, width)
    scores = _capped(packed @ key.mT, softcap).reshape(heads, BUNDLE, groups, rows, BLOCK)
    seen = torch.nn.functional.pad(seen, (0, 0, 0, 0, 0, BUNDLE - len(seen)))
    best, law = _weights(scores, seen[:, None])
    mixed = (law.reshape(heads, BUNDLE, groups * rows, BLOCK) @ value).reshape(heads, BUNDLE, groups, rows, -1)
    total = law.sum(-1)
    return [(best[:, b], total[:, b], mixed[:, b]) for b in range(BUNDLE)]


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
