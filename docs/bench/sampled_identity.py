"""Sampled on the embedded model: does the same seed give the same text for every pipeline and batch size?

    python docs/bench/sampled_identity.py --limit 6 --max-new-tokens 64 --seeds 3 --threads 2

Exact-match verification draws with noise keyed by (seed, position), so plain decoding, `pld` and `context-copy`, alone
and in batches of four, must write one text a seed. Compares in float32, on one loaded model, under several settings.
Where two texts part, the gap between the two best perturbed logits is printed; below 1e-4 it is a tie that rounding
decides. Exits with 1 if any difference is more than that.
"""

from __future__ import annotations

import sys
from typing import Any

import click
import torch
from attrs import evolve

from draftmux.bench.agreement import TIE, Margins, first_difference
from draftmux.bench.suites import SUITES
from draftmux.pipeline import Pipeline, load, override, plain_spec
from draftmux.prompts import encode

SETTINGS: dict[str, dict[str, Any]] = {
    "temperature 1": {"temperature": 1.0},
    "temperature 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
    "top-k 20, repetition penalty 1.1": {"temperature": 1.0, "top_k": 20, "repetition_penalty": 1.1},
    "min-p 0.1, frequency penalty 0.3": {"temperature": 1.0, "min_p": 0.1, "frequency_penalty": 0.3},
}


@click.command()
@click.option("--suite", type=click.Choice(sorted(SUITES)), default="humaneval")
@click.option("--limit", type=int, default=6)
@click.option("--max-new-tokens", "length", type=int, default=64)
@click.option("--seeds", type=int, default=3)
@click.option("--threads", type=int)
def main(suite: str, limit: int, length: int, seeds: int, threads: int | None) -> None:
    """Compare plain decoding, pld and context-copy, alone and four at a time."""
    if threads:
        torch.set_num_threads(threads)
    first = load("pld", ["models.target.dtype=float32", "max_batch=4", f"generation.max_new_tokens={length}"])
    copy = load_shared("context-copy", first)
    plain = Pipeline.build(plain_spec(first.spec), share=first)
    prompts = [row.turns[0] for row in SUITES[suite]().first(limit).rows]
    worst = 0.0
    for name, chosen in SETTINGS.items():
        for seed in range(seeds):
            settings = {**chosen, "seed": seed}
            truth = [plain.generate(prompt, **settings) for prompt in prompts]
            for label, pipeline in (("plain", plain), ("pld", first), ("context-copy", copy)):
                together = pipeline.generate(prompts, **settings)
                alone = truth if pipeline is plain else [pipeline.generate(prompt, **settings) for prompt in prompts]
                for batch, results in ((1, alone), (4, together)):
                    gaps = [
                        gap(plain, p, settings, t.tokens, r.tokens)
                        for p, t, r in zip(prompts, truth, results, strict=True)
                    ]
                    worst = max([worst, *gaps])
                    same = sum(t.tokens == r.tokens for t, r in zip(truth, results, strict=True))
                    mal = sum(r.metrics.accepted for r in results) / sum(r.metrics.steps for r in results) + 1
                    print(f"{name}, seed {seed}, {label}, batch {batch}: {same} of {len(prompts)} equal, MAL {mal:.2f}")
        sys.stdout.flush()
    print(f"largest gap at a difference: {worst:g}")
    sys.exit(worst > TIE)


def load_shared(name: str, lender: Pipeline) -> Pipeline:
    """A shipped pipeline over the lender's model, with its settings."""
    from draftmux.config.load import read_pipeline

    spec = evolve(read_pipeline(name), models=lender.spec.models, generation=lender.spec.generation, max_batch=4)
    return Pipeline.build(spec, share=lender)


def gap(plain: Pipeline, prompt: str, settings: Any, truth: tuple[int, ...], found: tuple[int, ...]) -> float:
    """0 for equal texts, else the gap between the two best logits at the first difference."""
    if truth == found:
        return 0.0
    generation = override(plain.spec.generation, settings)
    at = first_difference(found, truth)
    margin = Margins(plain.parts.backend, generation).at(encode(prompt, plain.tokenizer, generation), truth[:at])
    print(f"  a text differs at token {at}, where the two best logits are {margin} apart")
    return float("inf") if margin is None else margin


if __name__ == "__main__":
    main()
