"""Peak memory of an 8k-token context, ours and transformers', and growth over many requests.

    OMP_NUM_THREADS=2 python docs/bench/memory.py peak static
    OMP_NUM_THREADS=2 python docs/bench/memory.py peak transformers
    OMP_NUM_THREADS=2 python docs/bench/memory.py peak generate
    OMP_NUM_THREADS=2 python docs/bench/memory.py growth --requests 2000

`peak` loads the embedded model, prefills the context and decodes some tokens: by a backend of draftmux, or by
transformers' own `generate`. Prints the process's peak above what it held once the model was loaded. `growth` runs
short requests in batches through the shipped pipeline `merge`, and prints the memory held after every tenth part.
"""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from draftmux.pipeline import load

MIB = 1 << 20


def held() -> float:
    """Memory of the process now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MIB


def peak() -> float:
    """The most it ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@click.group()
def main() -> None:
    """Measure memory."""


@main.command("peak")
@click.argument("contender", type=click.Choice(["static", "transformers", "generate"]))
@click.option("--context", type=int, default=8000)
@click.option("--new", type=int, default=32)
def peak_of(contender: str, context: int, new: int) -> None:
    """Of one long request."""
    backend = "static" if contender == "static" else "transformers"
    pipeline = load(
        "plain", [f"backend.use={backend}", f"generation.max_new_tokens={new}", "generation.ignore_eos=true"]
    )
    prompt = np.random.default_rng(0).integers(10, 20_000, context).tolist()
    pipeline.generate([1, 2, 3], max_new_tokens=4)
    gc.collect()
    before, loading = held(), peak()
    if contender == "generate":
        target: Any = pipeline.parts.backend
        ids = torch.tensor([prompt])
        options = {"do_sample": False, "max_new_tokens": new, "min_new_tokens": new, "pad_token_id": 0}
        target.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    else:
        pipeline.generate(prompt)
    note = "" if peak() > loading else " (not above the peak of loading)"
    print(f"{contender}: {before:.0f} MiB once loaded, peak {peak() - before:.0f} MiB above it{note}")


@main.command("growth")
@click.option("--requests", type=int, default=2000)
@click.option("--max-new-tokens", type=int, default=4)
def growth(requests: int, max_new_tokens: int) -> None:
    """Over many short requests."""
    pipeline = load("merge", ["backend.use=static", f"generation.max_new_tokens={max_new_tokens}"])
    rng = np.random.default_rng(0)
    for part in range(11):
        gc.collect()
        print(f"{part * requests // 10:5} requests: {held():.0f} MiB", flush=True)
        for _ in range(requests // 40 if part < 10 else 0):
            pipeline.generate([rng.integers(10, 20_000, int(rng.integers(3, 60))).tolist() for _ in range(4)])


if __name__ == "__main__":
    main()
