"""In bfloat16, how many texts of speculative pipelines equal plain decoding's, by default and with `numerics: exact`?

    OMP_NUM_THREADS=2 python docs/bench/exact_numerics.py --limit 40 --max-new-tokens 128 --threads 2

For each mode one target is loaded, and every prompt is decoded plainly and by each pipeline, one after the other, in an
order drawn anew. Prints texts that are equal, tokens/s, and the speed of each relative to the default mode's plain.
"""

from __future__ import annotations

import random
import time
from typing import Any

import click
import torch

from draftmux.bench.suites import SUITES
from draftmux.config.load import read_pipeline
from draftmux.pipeline import Pipeline


@click.command()
@click.argument("names", nargs=-1)
@click.option("--limit", type=int, default=40)
@click.option("--max-new-tokens", type=int, default=128)
@click.option("--threads", type=int)
@click.option("--exact-rows", type=int, default=16)
def main(names: tuple[str, ...], limit: int, max_new_tokens: int, **given: Any) -> None:
    """Compare plain decoding with pipelines NAMES (pld, context-copy and merge if none are given)."""
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    shuffle = random.Random(0).shuffle
    rows = SUITES["humaneval"]().first(limit).rows
    settings = [f"generation.max_new_tokens={max_new_tokens}", "backend.use=static"]
    modes = {
        "default": settings,
        "exact": [*settings, "backend.numerics=exact", f"backend.exact_rows={given['exact_rows']}"],
    }
    lines = ("plain", *(names or ("pld", "context-copy", "merge")))
    base = 0.0
    for mode, overrides in modes.items():
        pipelines: dict[str, Any] = {}
        for name in lines:
            pipelines[name] = Pipeline.build(read_pipeline(name, overrides), share=pipelines.get("plain"))
            pipelines[name].generate("Warm up.", max_new_tokens=8)
        texts: dict[str, list[tuple[int, ...]]] = {name: [] for name in lines}
        seconds = dict.fromkeys(lines, 0.0)
        for row in rows:
            order = list(lines)
            shuffle(order)
            for name in order:
                started = time.perf_counter()
                texts[name].append(pipelines[name].generate(row.turns[0]).tokens)
                seconds[name] += time.perf_counter() - started
        for name in lines:
            equal = sum(a == b for a, b in zip(texts[name], texts["plain"], strict=True))
            rate = sum(map(len, texts[name])) / seconds[name]
            base = base or rate
            print(
                f"{mode:8} {name:13} {equal:3} of {limit} equal plain, {rate:5.1f} tok/s, {rate / base:.2f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
