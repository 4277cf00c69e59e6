"""Milliseconds of a step's stages, and between steps: what of a step is not the target's pass.

    OMP_NUM_THREADS=2 python docs/bench/host_work.py

Six HumanEval problems, 96 new tokens, each pipeline after the other on one loaded target.
"""

from __future__ import annotations

import time
from collections import Counter

import click
import torch

from draftmux.bench.suites import SUITES
from draftmux.config.load import read_pipeline
from draftmux.pipeline import Pipeline


@click.command()
@click.argument("names", nargs=-1)
@click.option("--limit", default=6, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(names: tuple[str, ...], limit: int, threads: int) -> None:
    """Of pipelines NAMES (plain, pld and merge if none are given)."""
    torch.set_num_threads(threads)
    share: Pipeline | None = None
    for name in names or ("plain", "pld", "merge"):
        pipeline = Pipeline.build(read_pipeline(name, ["generation.max_new_tokens=96"]), share=share)
        share = share or pipeline
        pipeline.generate("Warm up.", max_new_tokens=8)
        stages: Counter[str] = Counter()
        steps, elsewhere = 0, 0.0
        for row in SUITES["humaneval"]().first(limit).rows:
            started = time.perf_counter()
            metrics = pipeline.generate(row.turns[0]).metrics
            elsewhere += time.perf_counter() - started - metrics.prefill_seconds - sum(metrics.seconds.values())
            stages.update(metrics.seconds)
            steps += metrics.steps
        parts = [f"{stage} {1e3 * seconds / steps:.2f}" for stage, seconds in stages.items()]
        print(f"{name}: {', '.join(parts)}, between steps {1e3 * elsewhere / steps:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
