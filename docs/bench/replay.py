"""How fast would routers be, and how fast could one be that knows what comes? By replay of plain decoding.

    python docs/bench/replay.py docs/bench/switchsd/all.yaml docs/bench/switchsd/*.yaml --suite humaneval --limit 20 \
        --threads 2

Plain decoding runs once a prompt, and at every step all drafters of the first pipeline are asked for what they would
draft there. That is enough to play any router over drafters of these names: those of the other pipelines, then each
drafter alone, and the oracle, the shortest way through the text with any drafter or none at each place. Seconds are
those of the backend's cost curve and of the drafters as recorded; speeds are relative to the same curve's plain
decoding. Where the first pipeline's router reads a probe, so do the others.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
import torch

from draftmux.bench.replay import Recording, Replay, oracle, record
from draftmux.bench.suites import SUITES, from_file
from draftmux.config.load import read_pipeline
from draftmux.engine.metrics import Metrics
from draftmux.pipeline import load
from draftmux.prompts import encode
from draftmux.protocols import Resources
from draftmux.routers.fixed import Fixed
from draftmux.types import Budget

if TYPE_CHECKING:
    from draftmux.pipeline import Pipeline
    from draftmux.protocols import Router


NODES = 31  # of a recorded draft at most


@click.command()
@click.argument("recorded")
@click.argument("pipelines", nargs=-1)
@click.option("--suite", type=click.Choice(sorted(SUITES)))
@click.option("--prompts", type=click.Path(exists=True, path_type=Path))
@click.option("--limit", type=int, default=20)
@click.option("--threads", type=int)
def main(
    recorded: str,
    pipelines: tuple[str, ...],
    suite: str | None,
    prompts: Path | None,
    limit: int,
    threads: int | None,
) -> None:
    """Modelled speeds relative to plain decoding."""
    if threads:
        torch.set_num_threads(threads)
    if (suite is None) == (prompts is None):
        raise click.UsageError("give either --suite or --prompts")
    rows = (from_file(prompts) if prompts is not None else SUITES[str(suite)]()).first(limit).rows
    loaded = load(recorded, ["generation.max_new_tokens=128"])
    recordings = []
    for row in rows:
        ids = encode(row.turns[0], loaded.tokenizer, loaded.spec.generation)
        recordings.append(record(loaded.parts, loaded.tokenizer, ids, loaded.spec.generation, Budget(NODES)))
    for path in pipelines:
        if Path(path) != Path(recorded):
            show(Path(path).stem, bound(path, loaded), loaded, recordings)
    for name in loaded.parts.drafters:
        show(f"{name} alone", Fixed(drafter=name), loaded, recordings)
    best(loaded, recordings)


def bound(path: str, loaded: Pipeline) -> Router:
    """A pipeline's router, for the recorded target and drafters."""
    spec = read_pipeline(path)
    parts = loaded.parts
    router: Router = spec.router.plugin.bind(Resources(loaded.tokenizer, parts.backend, spec.models, parts.drafters))
    return router


def show(name: str, router: Router, loaded: Pipeline, recordings: list[Recording]) -> None:
    """One line: speed, tokens a pass, and for each drafter its share of steps and accepted tokens a step."""
    cost = loaded.parts.backend.cost
    recorded = {reading.tap: reading for reading in loaded.parts.readings}
    readings = {reading: recorded[reading.tap] for reading in router.needs.readings}
    played = [Replay(router, each, cost, loaded.spec.generation, readings).run() for each in recordings]
    metrics = sum((one.metrics for one in played), Metrics())
    plain = sum(len(each.tokens) for each in recordings) * cost(0)
    shares = ", ".join(
        f"{drafter} {steps / metrics.steps:.0%} ({metrics.accepted_by_drafter[drafter] / steps:.1f})"
        for drafter, steps in metrics.steps_by_drafter.most_common()
        if steps
    )
    speed = plain / sum(one.seconds for one in played)
    click.echo(f"{name}: {speed:.2f}x, {metrics.mean_acceptance_length:.2f} tokens a pass; {shares}")


def best(loaded: Pipeline, recordings: list[Recording]) -> None:
    """What the oracle makes of the same drafts."""
    cost = loaded.parts.backend.cost
    ways = [oracle(each, cost, list(loaded.parts.drafters)) for each in recordings]
    seconds = math.fsum(seconds for seconds, _ in ways)
    steps = sum((steps for _, steps in ways), Counter[str]())
    tokens = sum(len(each.tokens) for each in recordings)
    shares = ", ".join(f"{name} {count / steps.total():.0%}" for name, count in steps.most_common())
    click.echo(f"oracle: {tokens * cost(0) / seconds:.2f}x, {tokens / steps.total():.2f} tokens a pass; {shares}")


if __name__ == "__main__":
    main()
