"""Attention of a root and its draft tree over a static KV cache, in one pass: launcher, workspace, host helpers.

Every sequence attends to its committed prefix and, by ancestor bits, to the rows of its own pass, which stand in the
slots right behind. Query heads of one KV head are packed with the tree's rows into one tile, so keys and values are
read once and never repeated; the slots are split over the chip and the partial results combined. FlashAttention-2
(Dao 2023), Flash-Decoding (Dao et al. 2023); the tree mask as in SpecInfer (Miao et al. 2023) and Medusa (Cai et al.
2024).

Grid, tile and split size follow from shapes alone, never from what a tensor holds: one CUDA graph serves all lengths,
nothing waits for the device, and a row gets the same bits whichever way its past is divided into prefix and tree.
Knows nothing of models, layers or tokens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

import numpy as np
import torch
from attrs import frozen

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.backends.h100.kernels import Tile

LOG2_E = 1 / math.log(2)
PROGRAMS = 4 * 132  # four for each SM of an H100: enough loads in flight also when the cache is half empty
LEAST_SPLIT = 256  # slots; partial results of 64 rows are then a quarter of the keys and values read for them
LEAST_ROWS, MOST_ROWS = 16, 64  # of a tile, for mma and for wgmma
RAKED, CHUNK = 4, 16  # rows that one program combines, and splits at a time: 64 numbers a thread at head size 128
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Options(TypedDict, total=False):
    """`first`: the cache's row of sequence 0. `scale`: what scores are multiplied by.

    `window`: positions that a row sees, itself included. `softcap`: scores become
    softcap * tanh(score / softcap). `split`: slots a program looks at, a multiple of 64; by default from capacity and
    shapes, so that the chip is full. Fix it where bits must not depend on the batch.
    """

    first: int
    scale: Required[float]
    window: int | None
    softcap: float | None
    split: int | None
    workspace: Workspace | None
    out: Tensor | None


@frozen(eq=False)
class Workspace:
    """Memory for partial results, used by one launch after the other: `partials`, `sums`, both flat float32."""

    partials: Tensor
    sums: Tensor

    @classmethod
    def allocate(
        cls, shape: tuple[int, int, int, int], capacity: int, split: int | None, device: torch.device | str
    ) -> Workspace:
        """Enough for outputs `(B, Hq, N, Dv)` up to `shape` over up to `capacity` slots."""
        *sizes, width = shape
        # Without a fixed split there are never more programs than PROGRAMS, or there is only one split.
        rows = PROGRAMS * MOST_ROWS if split is None else math.prod(sizes) * -(-capacity // split)
        partials = torch.empty(rows * width, dtype=torch.float32, device=device)
        return cls(partials, torch.empty(rows, dtype=torch.float32, device=device))

    def views(self, shape: tuple[int, int, int, int], splits: int) -> tuple[Tensor, Tensor]:
        """Partial results `(B, Hq, N, splits, Dv)`, their log2 sums `(B, Hq, N, splits)`; ValueError if too small."""
        *sizes, width = shape
        rows = math.prod(sizes) * splits
        if rows > len(self.sums) or rows * width > len(self.partials):
            raise ValueError(
                f"a workspace for {len(self.sums)} rows of partial results cannot hold {rows} of width {width}; "
                "allocate it for the largest batch, rows and capacity"
            )
        partials = self.partials[: rows * width].view(*sizes, splits, width)
        return partials, self.sums[:rows].view(*sizes, splits)


def require_triton() -> Any:
    """The module of the kernels; ModelError where Triton is missing."""
    try:
        from draftmux.backends.h100 import kernels
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise
        raise ModelError(
            "the h100 backend's attention is written in Triton, which is not installed; `pip install triton`, "
            "or use another backend"
        ) from error
    return kernels


def tree_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    starts: Tensor,
    depths: Tensor,
    bits: Tensor,
    **options: Unpack[Options],
) -> Tensor:
    """Attention of `query (B, Hq, N, D)` over the cache rows `first` to `first + B`, `(B, Hq, N, Dv)` in its dtype.

    `keys (rows, Hkv, capacity, D)` and `values (rows, Hkv, capacity, Dv)`, any strides, hold the prefix in slots 0 to
    `starts - 1` (slot = position) and the pass's own rows in the N slots behind, which must lie within capacity.
    `starts (B,)`, `depths (B, N)` (position - start) and `bits (B, N, ceil(N / 32))` (see `ancestor_bits`) are int32
    on the same device. ValueError on shapes that do not fit; a row that sees nothing gives zeros.
    """
    _check(query, keys, values, depths, bits)
    kernels = require_triton()
    tile, splits = _tile(query, keys, values, options)
    shape = (query.shape[0], query.shape[1], query.shape[2], values.shape[3])
    out = options.get("out")
    if out is None:  # rows outermost, as the projection behind attention reads it
        out = query.new_empty(shape[0], shape[2], shape[1], shape[3]).transpose(1, 2)
    place = kernels.Place(_array(starts), _array(depths), _array(bits))
    numbers = _numbers(query, keys, options)
    grid = (-(-query.shape[2] * tile.group // tile.m), splits, query.shape[0] * keys.shape[1])
    launch = {"num_warps": 4, "num_stages": 2 if tile.m == MOST_ROWS else 3, "enable_fp_fusion": True}
    operands = (_array(query), kernels.Cache(_array(keys), _array(values)), place)
    with torch.cuda.device_of(query):
        if splits == 1:
            kernels.attend[grid](*operands, (_array(out.unsqueeze(3)), None), numbers, tile, **launch)
            return out
        workspace = options.get("workspace")
        if workspace is None:
            workspace = Workspace.allocate(shape, keys.shape[2], tile.split, query.device)
        partial = tuple(map(_array, workspace.views(shape, splits)))
        kernels.attend[grid](*operands, partial, numbers, tile, **launch)
        count = shape[0] * shape[1] * shape[2]
        rake = kernels.Rake(RAKED, CHUNK, max(CHUNK, 1 << (splits - 1).bit_length()))
        whole = kernels.Shape(count, shape[1], shape[2], splits)
        kernels.combine[(-(-count // RAKED),)](partial, _array(out), whole, tile, rake, **launch)
    return out


def _check(query: Tensor, keys: Tensor, values: Tensor, depths: Tensor, bits: Tensor) -> None:
    batch, heads, rows, width = query.shape
    if heads % keys.shape[1] or keys.shape[3] != width or keys.shape[:3] != values.shape[:3]:
        raise ValueError(
            f"queries {tuple(query.shape)} do not fit keys {tuple(keys.shape)} and values {tuple(values.shape)}"
        )
    if not query.dtype == keys.dtype == values.dtype or query.dtype not in DTYPES:
        raise ValueError(
            f"queries, keys and values have dtypes {query.dtype}, {keys.dtype}, {values.dtype}; "
            "use one of float32, float16 and bfloat16 for all three"
        )
    if depths.shape != (batch, rows) or bits.shape != (batch, rows, -(-rows // 32)):
        raise ValueError(
            f"{rows} rows of {batch} sequences need depths ({batch}, {rows}) and bits "
            f"({batch}, {rows}, {-(-rows // 32)}), got {tuple(depths.shape)} and {tuple(bits.shape)}"
        )


def _tile(query: Tensor, keys: Tensor, values: Tensor, options: Options) -> tuple[Tile, int]:
    """The tile of a launch and its number of splits.

    At 16 bits a tile of keys or values takes at most 16 KiB, what is in flight and the queries at most 100 KiB (as
    compiled for sm_90a): two programs to an SM, so that one loads while the other computes. Few rows get small tiles,
    so that decoding does not multiply padding; 64 is what wgmma takes with four warps, more would spill registers.
    float32 is multiplied without tensor cores and from registers, so it gets the smallest tile.
    """
    kernels = require_triton()
    batch, heads, rows, width = query.shape
    group = heads // keys.shape[1]
    pads = [max(16, 1 << (size - 1).bit_length()) for size in (width, values.shape[3])]
    block = 64 if max(pads) * query.element_size() <= 256 else 32
    most = LEAST_ROWS if query.dtype == torch.float32 else MOST_ROWS
    m = min(most, max(LEAST_ROWS, 1 << (rows * group - 1).bit_length()))
    capacity = keys.shape[2]
    split = options.get("split")
    if split is None:
        split = split_size(capacity, batch * keys.shape[1] * -(-rows * group // m), block)
    elif split < 1 or split % 64:
        raise ValueError(f"split must be a positive multiple of 64 slots, got {split}")
    splits = -(-capacity // split)
    tile = kernels.Tile(
        group=group,
        key_dim=width,
        value_dim=values.shape[3],
        key_pad=pads[0],
        value_pad=pads[1],
        m=m,
        block=block,
        split=split,
        partial=splits > 1,
        window=options.get("window") is not None,
        softcap=options.get("softcap") is not None,
        # The interpreter multiplies bfloat16 as if it were integers.
        widen=kernels.INTERPRETED and query.dtype == torch.bfloat16,
    )
    return tile, splits


def split_size(capacity: int, programs: int, block: int = 64) -> int:
    """Slots of a split, a multiple of `block`, when `programs` are needed per split to cover batch, heads and rows."""
    splits = max(1, PROGRAMS // programs)
    return max(LEAST_SPLIT, -(-capacity // (splits * block)) * block)


def _numbers(query: Tensor, keys: Tensor, options: Options) -> Any:
    scale, softcap = options["scale"], options.get("softcap")
    inner, outer = (1.0, scale) if softcap is None else (2 * LOG2_E * scale / softcap, softcap)
    return require_triton().Numbers(
        first=options.get("first", 0),
        rows=query.shape[2],
        heads=keys.shape[1],
        inner=inner,
        outer=outer * LOG2_E,
        window=options.get("window") or 0,
    )


def _array(tensor: Tensor) -> Any:
    return require_triton().Array(tensor, tensor.stride())


def write_slots(keys: Tensor, values: Tensor, k: Tensor, v: Tensor, starts: Tensor, first: int) -> None:
    """Put `k (B, Hkv, N, D)` and `v (B, Hkv, N, Dv)` into slots `starts` to `starts + N - 1` of rows `first` on.

    Everything stays on the device, so a CUDA graph can hold it.
    """
    batch, _, rows, _ = k.shape
    row = torch.arange(first, first + batch, device=k.device)[:, None]
    slots = starts[:, None] + torch.arange(rows, device=k.device)
    keys[row, :, slots] = k.transpose(1, 2)
    values[row, :, slots] = v.transpose(1, 2)


def ancestor_bits(mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Words `(B, N, ceil(N / 32))` of a mask `(B, N, N)`: bit u % 32 of word u // 32 says whether column u is seen."""
    columns = mask.shape[-1]
    padded = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, -columns % 32)])
    return np.packbits(padded, axis=-1, bitorder="little").view("<i4").astype(np.int32, copy=False)
