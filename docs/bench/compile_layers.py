"""Is a model compiled layer by layer as fast as one compiled whole?

    OMP_NUM_THREADS=2 python docs/bench/compile_layers.py

Integers of modules are symbolic, so that layers can share a graph. Passes of 1, 8 and 16 rows, eager, by layers and
whole, take turns; prints how long each took to start, medians, and the median ratio to eager.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch._dynamo.config as settings

from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.static.compiling import Compiled
from draftmux.backends.taps import decoder_layers
from draftmux.models.source import ModelSpec
from draftmux.protocols import Row
from draftmux.types import Draft

FORMS, SIZES, REPEATS = ("eager", "layers", "whole"), (1, 8, 16), 25


def main() -> None:
    """Measure."""
    torch.set_num_threads(2)
    target: Any = StaticBackend(self_check=False).bind(ModelSpec(source="smollm2"), ())
    sequence = target.open(list(range(100, 356))).sequence
    layers, whole, compiled = list(decoder_layers(target.model)), Compiled(target.model), {}
    skip = torch.compiler.skip_guard_on_all_nn_modules_unsafe
    for layer in layers:
        layer.compile(dynamic=True, options={"guard_filter_fn": skip})
        compiled[layer] = layer._compiled_call_impl

    def use(form: str) -> None:
        settings.allow_unspec_int_on_nn_module = form == "layers"
        target.runner.call = whole if form == "whole" else target.model
        for layer in layers:
            layer._compiled_call_impl = compiled[layer] if form == "layers" else None

    def score(rows: int) -> float:
        started = time.perf_counter()
        target.score([Row(sequence, 5, Draft.chain(range(7, 6 + rows)))])
        return time.perf_counter() - started

    for form in FORMS:
        use(form)
        print(f"{form}: {sum(map(score, (16, 2, 1))):.1f} s to start", flush=True)
    times: dict[tuple[str, int], list[float]] = {(form, rows): [] for form in FORMS for rows in SIZES}
    for _ in range(REPEATS):
        for (form, rows), found in times.items():
            use(form)
            score(rows)
            found.append(score(rows) + score(rows))
    for (form, rows), found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, times["eager", rows], strict=True))
        print(f"{rows} rows, {form}: {statistics.median(found) * 500:.1f} ms, {ratio:.2f}x of eager")


if __name__ == "__main__":
    main()
