"""Time of one target pass of N rows: the static backend, the transformers backend, and transformers' own model call.

    OMP_NUM_THREADS=2 python docs/bench/step_time.py --threads 2

Each repeat times every contender once, in an order drawn anew, over the same context; ratios are taken within a repeat.
`model(...)` is transformers' call with a DynamicCache that holds the context, cut back after every call. Prints the
median of each, and the median of the ratio to static with its 10th and 90th percentile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch
from transformers import DynamicCache

from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.models.load import load_model
from draftmux.models.source import ModelSpec
from draftmux.protocols import Row
from draftmux.types import Draft


def backend_pass(backend: Any, spec: ModelSpec, tokens: list[int]) -> Callable[[int], Any]:
    """A pass over the root and a chain, which leaves the cache as it was."""
    target = backend.over(load_model(spec).model)
    handle = target.open(tokens).sequence
    return lambda rows: target.score([Row(handle, tokens[-1], Draft.chain([7] * (rows - 1)))])[0].logits


def model_pass(spec: ModelSpec, tokens: list[int]) -> Callable[[int], Any]:
    """The same by transformers' own means."""
    model = load_model(spec).model
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(input_ids=torch.tensor([tokens[:-1]]), cache=cache, use_cache=True)

    @torch.inference_mode()
    def run(rows: int) -> Any:
        logits = model(input_ids=torch.tensor([[tokens[-1]] + [7] * (rows - 1)]), cache=cache, use_cache=True).logits
        cache.crop(-rows)
        return logits

    return run


def timed(run: Callable[[int], Any], rows: int) -> float:
    """Milliseconds until a number of the result can be read."""
    started = time.perf_counter()
    run(rows).flatten()[0].item()
    return 1e3 * (time.perf_counter() - started)


@click.command()
@click.option("--model", default="smollm2")
@click.option("--dtype", default="bfloat16")
@click.option("--context", type=int, default=256)
@click.option("--rows", type=int, multiple=True, default=(1, 8, 16))
@click.option("--repeats", type=int, default=40)
@click.option("--threads", type=int)
@click.option("--compile", "with_compiled", is_flag=True, help="Also the static backend with `compile: true`.")
def main(model: str, dtype: Any, context: int, **given: Any) -> None:
    """Compare."""
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    spec = ModelSpec(source=model, dtype=dtype)
    tokens = np.random.default_rng(0).integers(10, 20_000, context + 1).tolist()
    contenders = {
        "static": backend_pass(StaticBackend(), spec, tokens),
        "transformers backend": backend_pass(TransformersBackend(), spec, tokens),
        "model(...)": model_pass(spec, tokens),
    }
    if given["with_compiled"]:
        contenders["static, compiled"] = backend_pass(StaticBackend(compile=True), spec, tokens)
    shuffle = random.Random(0).shuffle
    for rows in given["rows"]:
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for repeat in range(given["repeats"] + 3):
            order = list(contenders)
            shuffle(order)
            for name in order:
                taken = timed(contenders[name], rows)
                if repeat >= 3:
                    times[name].append(taken)
        print(f"{rows} rows, {context} tokens of context, {dtype}")
        for name, taken_each in times.items():
            ratios = np.array(times["static"]) / np.array(taken_each)
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
            print(f"  {name:22} {np.median(taken_each):7.1f} ms; static is {middle:.2f}x of it [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
