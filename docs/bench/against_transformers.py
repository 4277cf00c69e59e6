"""Does a pipeline write what transformers' greedy `generate` writes, alone and in a batch?

    python docs/bench/against_transformers.py merge --suite humaneval --limit 40 --max-new-tokens 128
    python docs/bench/against_transformers.py merge --prompts PROMPTS.jsonl --limit 10 --max-new-tokens 64

Compares token for token in float32, on one loaded model. Where two texts part, the gap between the two best logits is
printed; a gap below 1e-4 is a tie that rounding decides. Exits with 1 if any difference is more than that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import torch

from draftmux.bench.agreement import TIE, Margins, first_difference
from draftmux.bench.contenders import as_transformers_runs_it
from draftmux.bench.suites import SUITES, from_file
from draftmux.pipeline import load
from draftmux.prompts import encode


def transformers_text(backend: Any, ids: list[int], length: int) -> tuple[int, ...]:
    """transformers' greedy text."""
    prompt = torch.tensor([ids], device=backend.device)
    pad = next(iter(backend.eos_ids))
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": length, "pad_token_id": pad}
    text = backend.model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    return tuple(text[0, len(ids) :].tolist())


@click.command()
@click.argument("name")
@click.option("--suite", type=click.Choice(sorted(SUITES)))
@click.option("--prompts", type=click.Path(path_type=Path))
@click.option("--limit", type=int)
@click.option("--max-new-tokens", type=int, default=128)
@click.option("--batch", type=int, default=4, help="Prompts that run together in the second comparison.")
@click.option("--threads", type=int)
def main(name: str, suite: str | None, prompts: Path | None, limit: int | None, **given: Any) -> None:
    """Compare NAME, a pipeline, with transformers."""
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    length = given["max_new_tokens"]
    settings = ["models.target.dtype=float32", f"generation.max_new_tokens={length}", f"max_batch={given['batch']}"]
    pipeline = load(name, settings)
    rows = (SUITES[suite]() if suite else from_file(prompts or Path())).first(limit).rows
    texts = [row.turns[0] for row in rows]
    ids = [encode(text, pipeline.tokenizer, pipeline.spec.generation) for text in texts]
    reference = as_transformers_runs_it(pipeline.parts.backend, pipeline.spec)
    theirs = [transformers_text(reference, each, length) for each in ids]
    alone = [pipeline.generate(text).tokens for text in texts]
    together = [result.tokens for result in pipeline.generate(texts)]
    margins = Margins(pipeline.parts.backend, pipeline.spec.generation)
    worst = 0.0
    for what, ours in (("alone", alone), (f"in batches of {given['batch']}", together)):
        for row, prompt, one, other in zip(rows, ids, ours, theirs, strict=True):
            if one != other:
                at = first_difference(one, other)
                gap = margins.at(prompt, other[:at])
                worst = max(worst, float("inf") if gap is None else gap)
                print(f"{what}: {row.id} differs at token {at}, where the two best logits are {gap} apart")
        same = sum(one == other for one, other in zip(ours, theirs, strict=True))
        print(f"{what}: {same} of {len(rows)} texts equal transformers' ({sum(map(len, theirs))} tokens)", flush=True)
    sys.exit(worst > TIE)


if __name__ == "__main__":
    main()
