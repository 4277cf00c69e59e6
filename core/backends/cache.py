"""KV storage for rows of different length, plugged into transformers' own cache interface.

Keys and values of all layers with the same shape share one buffer, `(members, rows, heads, capacity, dim)`, so that a
committed path is compacted by one gather. A pass writes into slots right behind what a row has committed; drafts need
no copy of the past. What lies behind a row's committed length is scratch. Knows nothing of tokens, positions or masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field
from transformers.cache_utils import Cache, CacheLayerMixin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

GRAIN = 256  # capacity grows in steps of this many slots


@define(eq=False)
class Placement:
    """Where the pass that runs now writes: rows `first` to `last` (exclusive), each from its own slot on."""

    first: int = 0
    last: int = 1
    starts: tuple[int, ...] = (0,)
    width: int = 0
    _rows: Tensor | None = field(default=None, init=False)
    _slots: Tensor | None = field(default=None, init=False)

    @property
    def extent(self) -> int:
        """Slots that attention has to look at."""
        return max(self.starts) + self.width

    def write(self, buffer: Tensor, states: Tensor) -> Tensor:
        """Put `states (rows, heads, width, dim)` in place; returns the buffer's part to attend to."""
        if len(set(self.starts)) == 1:
            buffer[self.first : self.last, :, self.starts[0] : self.starts[0] + self.width] = states
        else:
            rows, slots = self._indices(buffer.device)
            buffer[rows, :, slots] = states.transpose(1, 2)
        return buffer[self.first : self.last, :, : self.extent]

    def _indices(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self._rows is None or self._slots is None:
            self._rows = torch.arange(self.first, self.last, device=device)[:, None]
            self._slots = torch.tensor(self.starts, device=device)[:, None] + torch.arange(self.width, device=device)
        return self._rows, self._slots


@define(eq=False)
class Pool:
    """One buffer for all keys and values of one shape. Members are added until `room` is used up."""

    data: Tensor  # (room, rows, heads, capacity, dim)
    members: int = 0

    @property
    def full(self) -> bool:
        """No room for another member."""
        return self.members == len(self.data)

    def resize(self, rows: int, capacity: int) -> None:
        """Take a new size, keeping what is there."""
        old = self.data
        new = _zeros(old, len(old), rows, old.shape[2], capacity, old.shape[4])
        new[:, : old.shape[1], :, : old.shape[3]] = old
        self.data = new


def _zeros(like: Tensor, *shape: int) -> Tensor:
    # Zeros, not empty: masked slots are multiplied by zero, and zero times garbage may be NaN.
    return like.new_zeros(shape)


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers ships no types
    """One layer's keys and values: its places in the pools, and views of them."""

    keys: Tensor  # (rows, heads, capacity, dim)
    values: Tensor
    _places: tuple[tuple[Pool, int], tuple[Pool, int]]

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take places in pools of the right shape, at the size the cache has by now."""
        self._places = (self._cache.place(key_states), self._cache.place(value_states))
        self.is_initialized = True
        self.refresh()

    def refresh(self) -> None:
        """Look at the pools' buffers of now."""
        if self.is_initialized:
            self.keys, self.values = (pool.data[index] for pool, index in self._places)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Called by the model's attention: store this pass's states, return all that it may attend to.

        With `deferred` the attention function stores them, and this hands them on.
        """
        if not self._cache.deferred:
            return self.store(key_states, value_states)
        return key_states, value_states

    def store(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Write `(rows, heads, width, dim)` where the pass writes; returns `(rows, heads, extent, dim)` to see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        place = self._cache.placement
        return place.write(self.keys, key_states), place.write(self.values, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots to attend to, and the first of them."""
        return self._cache.placement.extent, 0

    def get_seq_length(self) -> int:
        """Slots in use before this pass."""
        return max(self._cache.placement.starts)

    def get_max_length(self) -> int:
        """No maximum: the cache grows."""
        return -1

    def forget(self) -> None:
        """Let go of the buffers."""
        if self.is_initialized:
            del self.keys, self.values, self._places
        self.is_initialized = False


class SlotCache(Cache):  # type: ignore[misc]
    """All layers. `rows` and `capacity` grow as needed and never shrink while sequences run."""

    def __init__(self, layers: int, deferred: bool = False) -> None:
        self.rows = 1
        self.capacity = GRAIN
        self.deferred = deferred
        self.version = 0  # of the buffers: another one whenever they are not where they were
        self.placement = Placement()
        self.pools: list[Pool] = []
        self.slot_layers = [SlotLayer(self) for _ in range(layers)]
        self._reached = [0]  # per row: no slot from here on was ever written
        self._known: dict[tuple[Any, ...], int] = {}  # members of each shape, once a pass has shown them all
        super().__init__(layers=self.slot_layers)

    def place(self, states: Tensor) -> tuple[Pool, int]:
        """A free place for the keys or values of a layer whose states look like these."""
        shape = _shape(states)
        pool = next((pool for pool in self.pools if _shape(pool.data[0]) == shape and not pool.full), None)
        if pool is None:
            # Before the first pass has ended, layers are taken to be alike.
            room = self._known.get(shape, 2 * len(self.slot_layers))
            pool = Pool(_zeros(states, room, self.rows, states.shape[1], self.capacity, states.shape[3]))
            self.pools.append(pool)
            self.version += 1
        pool.members += 1
        return pool, pool.members - 1

    def reserve(self, rows: int, capacity: int) -> None:
        """Make room for this many rows and slots."""
        if rows <= self.rows and capacity <= self.capacity:
            return
        if rows > self.rows:
            rows = max(rows, self.rows * 3 // 2)
        if capacity > self.capacity:
            # A quarter as much again, so that copying stays a constant share of the work.
            capacity = -(-max(capacity, self.capacity * 5 // 4) // GRAIN) * GRAIN
        rows, capacity = max(rows, self.rows), max(capacity, self.capacity)
        for pool in self.pools:
            pool.resize(rows, capacity)
        self.rows, self.capacity = rows, capacity  # only now: where memory ran out, the next pass tries again
        self._reached += [0] * (rows - len(self._reached))
        self.version += 1
        for layer in self.slot_layers:
            layer.refresh()

    def aim(self, place: Placement) -> None:
        """Make room for a pass and say where it writes.

        Of rows of different length the shorter ones see scratch, under a mask; what an earlier pass left there is
        wiped, since masked numbers are multiplied by zero, and an infinity would come through.
        """
        self.reserve(place.last, place.extent)
        self.placement = place
        for row, start in zip(range(place.first, place.last), place.starts, strict=True):
            end = start + place.width
            if end < min(self._reached[row], place.extent):
                for pool in self.pools:
                    pool.data[:, row, :, end : self._reached[row]] = 0
                self._reached[row] = end
            self._reached[row] = max(self._reached[row], end)

    def move(self, row: int, source: Sequence[int], target: int) -> None:
        """Gather slots of a row and write them from slot `target` on, in every layer. The copy comes first."""
        slots = torch.tensor(source, device=self.pools[0].data.device)
        for pool in self.pools:
            kept = pool.data[:, row].index_select(2, slots)
            pool.data[:, row, :, target : target + len(source)] = kept

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` slots of a row to another, in every layer; before the first pass there are none."""
        self._reached[target] = max(self._reached[target], length)
        for pool in self.pools if length else ():
            pool.data[:, target, :, :length] = pool.data[:, source, :, :length]

    def release(self) -> None:
        """Give all memory back; the next pass allocates anew."""
        if all(layer.is_initialized for layer in self.slot_layers):
            self._known = _count(self.pools)
        self.version += 1
        self.rows, self.capacity, self.placement, self.pools = 1, GRAIN, Placement(), []
        self._reached = [0]
        for layer in self.slot_layers:
            layer.forget()


def _shape(states: Tensor) -> tuple[Any, ...]:
    return states.shape[1], states.shape[3], states.dtype, states.device


def _count(pools: Sequence[Pool]) -> dict[tuple[Any, ...], int]:
    counts: dict[tuple[Any, ...], int] = {}
    for pool in pools:
        shape = _shape(pool.data[0])
        counts[shape] = counts.get(shape, 0) + pool.members
    return counts
