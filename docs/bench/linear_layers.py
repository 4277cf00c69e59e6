"""Linear layers of SmolLM2's shapes on a CPU: as torch runs them, packed, packed and joined, and in fewer bits.

    OMP_NUM_THREADS=2 python docs/bench/linear_layers.py --threads 2

Milliseconds of one pass over all 211 layers with random weights, by rows. `joined` makes one layer of q, k and v, and
one of gate and up. `bits` says for which numbers of rows a row of a packed layer differs from the same row in a pass
of 16.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from draftmux.backends.static.packing import PackedLinear

LAYERS = 30
WIDTHS = {"q": (576, 576), "k": (192, 576), "v": (192, 576), "o": (576, 576)}
WIDTHS |= {"gate": (1536, 576), "up": (1536, 576), "down": (576, 1536)}
JOINED = {"qkv": (960, 576), "o": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}
HEAD = (49152, 576)
ROWS = (1, 2, 8, 16, 32, 64)


def milliseconds(run: Callable[[], Any], repeats: int = 15) -> float:
    """Median time of a call."""
    times = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times[2:])


def layers(dtype: torch.dtype, widths: dict[str, tuple[int, int]]) -> list[nn.Linear]:
    """All layers and the head."""
    made = [nn.Linear(i, o, bias=False, dtype=dtype) for _ in range(LAYERS) for o, i in widths.values()]
    return [*made, nn.Linear(HEAD[1], HEAD[0], bias=False, dtype=dtype)]


def passes(multiply: list[tuple[int, Callable[[Tensor], Tensor]]], dtype: torch.dtype) -> list[float]:
    """Milliseconds by rows."""
    found = []
    for rows in ROWS:
        states = {width: torch.randn(rows, width, dtype=dtype) for width in (576, 1536)}

        def run(states: dict[int, Tensor] = states) -> None:
            for width, call in multiply:
                call(states[width])

        found.append(milliseconds(run))
    return found


def int8(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The layer with weights of 8 bits."""
    weight, scale = torch.randint(-127, 127, layer.weight.shape, dtype=torch.int8), torch.rand(layer.out_features)
    return lambda states: torch._weight_int8pack_mm(states, weight, scale.to(states.dtype))


def int4(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The layer with weights of 4 bits in groups of 32."""
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, layer.weight.shape, dtype=torch.int32), 1)
    scale = torch.rand(layer.in_features // 32, layer.out_features, 2).bfloat16()
    return lambda states: torch.ops.aten._weight_int4pack_mm_for_cpu(states, packed, 32, scale)  # type: ignore[no-any-return]


def bits(dtype: torch.dtype) -> str:
    """Numbers of rows in which a packed layer's first rows differ from those of a pass of 16."""
    odd: set[int] = set()
    for height, width in {*WIDTHS.values(), HEAD}:
        packed, states = PackedLinear(nn.Linear(width, height, bias=False, dtype=dtype)), torch.randn(1, 208, width)
        states = states.to(dtype)
        expected = packed(states[:, :16])
        for rows in range(1, 209):
            shared = min(rows, 16)
            if not torch.equal(packed(states[:, :rows])[:, :shared], expected[:, :shared]):
                odd.add(rows)
    return ", ".join(map(str, sorted(odd))) or "none"


@click.command()
@click.option("--threads", type=int)
def main(threads: int | None) -> None:
    """Measure."""
    if threads:
        torch.set_num_threads(threads)
    print("rows " + " ".join(f"{rows:6}" for rows in ROWS))
    with torch.inference_mode():
        for dtype in (torch.bfloat16, torch.float32):
            plain, joined = layers(dtype, WIDTHS), layers(dtype, JOINED)
            contenders: dict[str, list[tuple[int, Callable[[Tensor], Tensor]]]] = {
                "plain": [(each.in_features, lambda x, w=each.weight: linear(x, w)) for each in plain],
                "packed": [(each.in_features, PackedLinear(each)) for each in plain],
                "packed, joined": [(each.in_features, PackedLinear(each)) for each in joined],
            }
            if dtype == torch.bfloat16:
                contenders["int8"] = [(each.in_features, int8(each)) for each in plain]
                contenders["int4"] = [(each.in_features, int4(each)) for each in plain]
            for name, multiply in contenders.items():
                figures = " ".join(f"{taken:6.1f}" for taken in passes(multiply, dtype))
                print(f"{str(dtype).removeprefix('torch.')}, {name:15} {figures}", flush=True)
            print(f"{str(dtype).removeprefix('torch.')}, bits differ in passes of: {bits(dtype)} rows", flush=True)


if __name__ == "__main__":
    main()
