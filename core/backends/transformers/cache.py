"""KV storage for rows of different length, plugged into transformers' own cache interface.

Each layer is one buffer per keys and values, `(rows, heads, capacity, dim)`. A pass writes its keys and values into
slots right behind what a row has committed, so drafts need no copy of the past; committing a path moves only the rows
of that path. What lies behind a row's committed length is scratch. Knows nothing of tokens, positions or masks.
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


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers ships no types
    """One layer's keys and values."""

    keys: Tensor
    values: Tensor

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate at the size the cache has by now."""
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def _allocate(self, like: Tensor) -> Tensor:
        # Zeros, not empty: masked slots are multiplied by zero, and zero times garbage may be NaN.
        return like.new_zeros(self._cache.rows, like.shape[1], self._cache.capacity, like.shape[3])

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Called by the model's attention: store this pass's states, return all that it may attend to."""
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
        """Free the buffers."""
        if self.is_initialized:
            del self.keys, self.values
        self.is_initialized = False

    def resize(self) -> None:
        """Take the cache's new size, keeping what fits."""
        if self.is_initialized:
            self.keys, self.values = self._resized(self.keys), self._resized(self.values)

    def _resized(self, old: Tensor) -> Tensor:
        new = self._allocate(old)
        rows, slots = min(len(old), len(new)), min(old.shape[2], new.shape[2])
        new[:rows, :, :slots] = old[:rows, :, :slots]
        return new

    def move(self, row: int, source: Tensor, target: int) -> None:
        """Gather slots `source` of a row and write them from slot `target` on. The copy comes first: they overlap."""
        for buffer in (self.keys, self.values):
            buffer[row, :, target : target + len(source)] = buffer[row].index_select(1, source.to(buffer.device))

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` slots of a row to another; before the first pass there are none."""
        for buffer in (self.keys, self.values) if length else ():
            buffer[target, :, :length] = buffer[source, :, :length]


class SlotCache(Cache):  # type: ignore[misc]
    """All layers. `rows` and `capacity` grow as needed and never shrink while sequences run."""

    def __init__(self, layers: int) -> None:
        self.rows = 1
        self.capacity = GRAIN
        self.placement = Placement()
        self.slot_layers = [SlotLayer(self) for _ in range(layers)]
        super().__init__(layers=self.slot_layers)

    def reserve(self, rows: int, capacity: int) -> None:
        """Make room for this many rows and slots."""
        if rows <= self.rows and capacity <= self.capacity:
            return
        if rows > self.rows:
            self.rows = max(rows, self.rows * 3 // 2)
        if capacity > self.capacity:
            # Half as much again, so that copying stays a constant share of the work.
            self.capacity = -(-max(capacity, self.capacity * 3 // 2) // GRAIN) * GRAIN
        for layer in self.slot_layers:
            layer.resize()

    def move(self, row: int, source: Sequence[int], target: int) -> None:
        """Move slots within a row, in every layer."""
        slots = torch.tensor(source, device=self.slot_layers[0].keys.device)  # one copy to the device for all layers
        for layer in self.slot_layers:
            layer.move(row, slots, target)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy a row, in every layer."""
        for layer in self.slot_layers:
            layer.copy_row(source, target, length)

    def release(self) -> None:
        """Give all memory back; the next pass allocates anew."""
        self.rows, self.capacity, self.placement = 1, GRAIN, Placement()
        for layer in self.slot_layers:
            layer.forget()
