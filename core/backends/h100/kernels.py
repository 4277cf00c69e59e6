"""The two Triton kernels of tree attention: partial softmax over one split of the slots, and the combination of splits.

Sources of the method: FlashAttention-2 (Dao 2023) for the online softmax, Flash-Decoding (Dao et al. 2023) for the
splits, tree attention as in SpecInfer (Miao et al. 2023, section 4) and Medusa (Cai et al. 2024, section 2.2).

Knows pointers, strides and tiles. Chooses none of them, and must not: what a row sums, and in which order, follows
from absolute slots, tile and split size alone. Blocks and splits in which a row sees nothing change nothing in it,
not even a bit. So a row at position p gets the same bits however its pass divides p into prefix and tree.

Importing this module needs Triton; `tree_attention.require_triton` says so to those who lack it.
"""

# Triton takes the annotations of a kernel for types of its own.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

INTERPRETED = bool(triton.knobs.runtime.interpret)  # decided when the kernels below are defined, so asked here


class Array(NamedTuple):
    """A tensor's first element and its strides."""

    base: Any
    strides: tuple[int, ...]


class Place(NamedTuple):
    """Per sequence: committed length `(B,)`; depths `(B, N)` and ancestor words `(B, N, words)` of the rows."""

    starts: Array
    depths: Array
    bits: Array


class Cache(NamedTuple):
    """`(rows, Hkv, capacity, dim)` each."""

    key: Array
    value: Array


class Numbers(NamedTuple):
    """What a launch may change without compiling anew. `inner`, `outer`: factors inside and outside of tanh."""

    first: int
    rows: int
    heads: int
    inner: float
    outer: float
    window: int


class Tile(NamedTuple):
    """What is compiled in. `group`: query heads a KV head; `m`: packed rows, `block`: slots of a tile."""

    group: int
    key_dim: int
    value_dim: int
    key_pad: int
    value_pad: int
    m: int
    block: int
    split: int
    partial: bool
    window: bool
    softcap: bool
    widen: bool


class Shape(NamedTuple):
    """What `combine` reads: `total` rows, that is B * heads * nodes, each in so many `splits`."""

    total: int
    heads: int
    nodes: int
    splits: int


class Rake(NamedTuple):
    """What `combine` compiles in: rows of a program, splits at a time, all splits padded to a power of two."""

    rows: int
    chunk: int
    padded: int


@triton.jit
def _rows(array, row, head, slots):
    """Pointers to rows `slots` of a sequence and a head, or of one head each."""
    # A cache may hold more than 2**31 numbers, and a view of it have any strides: 64 bits.
    offset = tl.cast(row, tl.int64) * array.strides[0] + tl.cast(head, tl.int64) * array.strides[1]
    return array.base + (offset + tl.cast(slots, tl.int64) * array.strides[2])


@triton.jit
def _read(rows, stride, real, dim: tl.constexpr, pad: tl.constexpr, widen: tl.constexpr):
    """`dim` numbers of each row, padded with zeros; zeros where not `real`."""
    at = tl.arange(0, pad)
    found = tl.load(rows[:, None] + at[None, :] * stride, real[:, None] & (at < dim)[None, :], other=0.0)
    if widen:
        found = found.to(tl.float32)
    return found


@triton.jit
def _ancestors(words, stride, real, first, count):
    """Bits `first` to `first + 31` of each row `(m,)`; bits outside of its `count` words are zeros."""
    at = tl.where(real, first >> 5, -2)  # so that neither word of a row beyond the last one is there
    low = tl.load(words + at * stride, (at >= 0) & (at < count), other=0).to(tl.int64)
    high = tl.load(words + (at + 1) * stride, (at >= -1) & (at < count - 1), other=0).to(tl.int64)
    return (((low & 0xFFFFFFFF) | (high << 32)) >> (first & 31)).to(tl.int32)


@triton.jit
def _visible(place, row, node, beyond, numbers, tile: tl.constexpr):
    """Which rows `node (m,)` see which columns of a block that begins at slot `start + beyond`, `(m, block)`."""
    real, row64 = node < numbers.rows, tl.cast(row, tl.int64)
    column = tl.arange(0, tile.block)
    drafted = (beyond + column >= 0) & (beyond + column < numbers.rows)
    words = place.bits.base + row64 * place.bits.strides[0] + node * place.bits.strides[1]
    count = (numbers.rows + 31) // 32
    # Two loads a row instead of one a score: blocks begin anywhere in the tree, but are whole words long.
    bits = _ancestors(words, place.bits.strides[2], real, beyond, count)[:, None]
    if tile.block == 64:
        upper = _ancestors(words, place.bits.strides[2], real, beyond + 32, count)[:, None]
        bits = tl.where((column < 32)[None, :], bits, upper)
    seen = (beyond + column < 0)[None, :] | (drafted[None, :] & (((bits >> (column & 31)[None, :]) & 1) != 0))
    if tile.window:  # positions relative to start; a slot is its position inside the prefix only
        depths = place.depths.base + row64 * place.depths.strides[0]
        own = tl.load(depths + node * place.depths.strides[1], real, other=0)
        depth = tl.load(depths + (beyond + column) * place.depths.strides[1], drafted, other=0)
        held = tl.where(beyond + column < 0, beyond + column, depth)
        seen = seen & (own[:, None] - held[None, :] < numbers.window)
    return seen


@triton.jit
def _scores(query, key, seen, numbers, tile: tl.constexpr):
    """Scores in units of log 2, minus infinity where nothing is seen."""
    score = tl.dot(query, tl.trans(key), input_precision="ieee")
    if tile.softcap:  # tanh(x) = 1 - 2 / (exp(2 x) + 1); `inner` holds 2 / log 2 as well
        score = 1.0 - 2.0 / (tl.exp2(score * numbers.inner) + 1.0)
    return tl.where(seen, score * numbers.outer, float("-inf"))


@triton.jit
def _span(start, split, numbers, tile: tl.constexpr):
    """First slot, and the one behind the last, that a split has to look at."""
    low = split * tile.split
    if tile.window:  # the root sees furthest back; blocks before that are left out whole
        low = tl.maximum(low, (start - numbers.window + 1) // tile.block * tile.block)
    return low, tl.minimum(split * tile.split + tile.split, start + numbers.rows)


@triton.jit
def _weigh(score, top):
    """Online softmax: weights of new scores, what earlier ones shrink by, and the new maximum."""
    new = tl.maximum(top, tl.max(score, 1))
    base = tl.where(new == float("-inf"), 0.0, new)  # nothing seen yet: no inf - inf
    return tl.exp2(score - base[:, None]), tl.exp2(top - base), new


@triton.jit
def attend(queries, cache, place, out, numbers, tile: tl.constexpr):
    """One tile of rows and one KV head over one split. Program ids: tile, split, sequence and KV head.

    Row m of a tile is query head m % group of node m // group. `out`: the values and, for partial results, their
    log2 sums `(B, Hq, N, splits)`.
    """
    split = tl.program_id(1)
    row, head = tl.program_id(2) // numbers.heads, tl.program_id(2) % numbers.heads
    m = tl.program_id(0) * tile.m + tl.arange(0, tile.m)
    node, query_head = m // tile.group, head * tile.group + m % tile.group
    real = node < numbers.rows
    start = tl.load(place.starts.base + row * place.starts.strides[0])
    low, high = _span(start, split, numbers, tile)
    if tile.partial:
        sums = _rows(out[1], row, query_head, node) + split * out[1].strides[3]
        if low >= high:  # nothing to see; values behind a sum of minus infinity are never read
            tl.store(sums, tl.full([tile.m], float("-inf"), tl.float32), real)
            return

    rows = _rows(queries, row, query_head, node)
    query = _read(rows, queries.strides[3], real, tile.key_dim, tile.key_pad, tile.widen)
    top = tl.full([tile.m], float("-inf"), tl.float32)
    total = tl.zeros([tile.m], tl.float32)
    mixed = tl.zeros([tile.m, tile.value_pad], tl.float32)
    for begin in tl.range(low, high, tile.block):
        slots = begin + tl.arange(0, tile.block)
        held = slots < start + numbers.rows  # what lies behind is scratch: NaN times zero is NaN
        keys = _rows(cache.key, numbers.first + row, head, slots)
        values = _rows(cache.value, numbers.first + row, head, slots)
        key = _read(keys, cache.key.strides[3], held, tile.key_dim, tile.key_pad, tile.widen)
        value = _read(values, cache.value.strides[3], held, tile.value_dim, tile.value_pad, tile.widen)
        seen = _visible(place, row, node, begin - start, numbers, tile)
        weight, shrink, top = _weigh(_scores(query, key, seen, numbers, tile), top)
        total = total * shrink + tl.sum(weight, 1)
        weight = weight.to(cache.value.base.dtype.element_ty).to(value.dtype)
        mixed = tl.dot(weight, value, mixed * shrink[:, None], input_precision="ieee")

    total = tl.where(total == 0.0, 1.0, total)  # a row that sees nothing: zeros, and a sum of minus infinity
    dim = tl.arange(0, tile.value_pad)
    to = _rows(out[0], row, query_head, node) + split * out[0].strides[3]
    found = (mixed / total[:, None]).to(out[0].base.dtype.element_ty)
    tl.store(to[:, None] + dim[None, :] * out[0].strides[4], found, real[:, None] & (dim < tile.value_dim)[None, :])
    if tile.partial:
        tl.store(sums, top + tl.log2(total), real)


@triton.jit
def combine(partial, out, shape, tile: tl.constexpr, rake: tl.constexpr):
    """Weigh the partial results of some rows, counted over `(B, Hq, N)`, by their sums. Program id: which rows.

    Chunks of splits are added one after the other, so that empty splits behind the last one change nothing, however
    many there are.
    """
    values, sums = partial
    row = tl.cast(tl.program_id(0), tl.int64) * rake.rows + tl.arange(0, rake.rows)
    real = row < shape.total
    every = tl.arange(0, rake.padded)
    split_sums = sums.base + row[:, None] * sums.strides[2]
    there = real[:, None] & (every < shape.splits)[None, :]
    top = tl.max(tl.load(split_sums + every[None, :], there, other=float("-inf")), 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    dim = tl.arange(0, tile.value_pad)
    total = tl.zeros([rake.rows], tl.float32)
    mixed = tl.zeros([rake.rows, tile.value_pad], tl.float32)
    for begin in tl.range(0, shape.splits, rake.chunk):
        split = begin + tl.arange(0, rake.chunk)
        known = real[:, None] & (split < shape.splits)[None, :]
        weight = tl.exp2(tl.load(split_sums + split[None, :], known, other=float("-inf")) - top[:, None])
        held = (weight > 0.0)[:, :, None] & (dim < tile.value_dim)[None, None, :]
        at = row[:, None] * values.strides[2] + split[None, :] * values.strides[3]
        part = tl.load(values.base + at[:, :, None] + dim[None, None, :], held, other=0.0)
        total += tl.sum(weight, 1)
        mixed += tl.sum(part * weight[:, :, None], 1)
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    node, head, sequence = row % shape.nodes, row // shape.nodes % shape.heads, row // shape.nodes // shape.heads
    to = out.base + (sequence * out.strides[0] + head * out.strides[1] + node * out.strides[2])[:, None]
    to += dim[None, :] * out.strides[3]
    tl.store(to, mixed.to(out.base.dtype.element_ty), real[:, None] & (dim < tile.value_dim)[None, :])
