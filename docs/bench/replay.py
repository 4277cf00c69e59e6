"""How fast would routers be, and how fast could one be that knows what comes? By replay of plain decoding.

    python docs/bench/replay.py docs/bench/switchsd/all.yaml docs/bench/switchsd/*.yaml switchsd cost-aware \
        --suite humaneval --rows 0:60 --threads 2

Plain decoding runs once a prompt, and at every step all drafters of the first pipeline are asked for what they would
draft there. That is enough to play any router over drafters of these names: those of the other pipelines, with drafts
as deep as their own drafters', then each drafter alone, and the oracle, the shortest way through the text with any
drafter or none at each place. Seconds are those of the backend's cost curve and of the drafters as recorded; speeds are
relative to the same curve's plain decoding. Where the first pipeline's router reads a probe, so do the others.
`--vary router.KEY=VALUE,VALUE` plays the other pipelines once for each value; given twice, for each pair. Where another
pipeline's drafter of a recorded name has other options than `depth`, that is said: the recorded drafts are played.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve
from torch import set_num_threads

from draftmux.bench.replay import Recording, Replay, oracle, record
from draftmux.bench.suites import SUITES, from_file
from draftmux.config.load import read_pipeline
from draftmux.engine.metrics import Metrics
from draftmux.pipeline import load
from draftmux.prompts import encode
from draftmux.protocols import Resources
from draftmux.pruning import within
from draftmux.routers.fixed import Fixed
from draftmux.types import Budget

if TYPE_CHECKING:
    from draftmux.pipeline import Pipeline
    from draftmux.protocols import Router


NODES = 207  # of a recorded draft at most: as many as a pass is measured for


@click.command()
@click.argument("recorded")
@click.argument("pipelines", nargs=-1)
@click.option("--suite", type=click.Choice(sorted(SUITES)))
@click.option("--prompts", type=click.Path(exists=True, path_type=Path))
@click.option("--rows", default="0:20", help="Which prompts, as FIRST:END.")
@click.option("--vary", multiple=True, metavar="KEY=VALUE,VALUE")
@click.option("--threads", type=int, expose_value=False, callback=lambda _, __, value: value and set_num_threads(value))
def main(
    recorded: str, pipelines: tuple[str, ...], suite: str | None, prompts: Path | None, rows: str, vary: tuple[str, ...]
) -> None:
    """Modelled speeds relative to plain decoding."""
    if (suite is None) == (prompts is None):
        raise click.UsageError("give either --suite or --prompts")
    if odd := [each for each in vary if not each.startswith("router.")]:
        raise click.UsageError(f"--vary: drafts are recorded once, so that only options of the router vary: {odd[0]}")
    first, end = map(int, rows.split(":"))
    questions = (from_file(prompts) if prompts is not None else SUITES[str(suite)]()).rows[first:end]
    loaded = load(recorded, ["generation.max_new_tokens=128"])
    recordings = []
    for question in questions:
        ids = encode(question.turns[0], loaded.tokenizer, loaded.spec.generation)
        recordings.append(record(loaded.parts, loaded.tokenizer, ids, loaded.spec.generation, Budget(NODES)))
    ways = list(itertools.product(*([f"{key}={value}" for value in values.split(",")] for key, values in split(vary))))
    for path in pipelines:
        if Path(path) != Path(recorded):
            compare(path, loaded)
            for overrides in ways:
                play(path, overrides, loaded, recordings)
    for name in loaded.parts.drafters:
        show(f"{name} alone", Fixed(drafter=name), loaded, recordings)
    best(loaded, recordings)


def compare(path: str, loaded: Pipeline) -> None:
    """Say where a pipeline's drafters are not those that were recorded."""
    for name, own in read_pipeline(path).drafters.items():
        theirs = loaded.spec.drafters.get(name)
        if theirs is None:
            raise click.UsageError(f"{path} has a drafter '{name}', which the recorded pipeline has not")
        kept = [{key: value for key, value in each.options.items() if key != "depth"} for each in (own, theirs)]
        if own.use != theirs.use or kept[0] != kept[1]:
            click.echo(f"{path}: '{name}' is played as it was recorded, {theirs.options}, not {own.options}", err=True)


def split(vary: tuple[str, ...]) -> list[tuple[str, str]]:
    """Keys, and their values as written."""
    return [(key, values) for key, _, values in (each.partition("=") for each in vary)]


def play(path: str, overrides: tuple[str, ...], loaded: Pipeline, recordings: list[Recording]) -> None:
    """A pipeline's router, bound to the recorded target and drafters; no draft is deeper than its own drafters'."""
    spec = read_pipeline(path, overrides)
    parts = loaded.parts
    router = spec.router.plugin.bind(Resources(loaded.tokenizer, parts.backend, spec.models, parts.drafters))
    depths = {name: getattr(drafter.plugin, "depth", None) for name, drafter in spec.drafters.items()}
    cut = [shallow(each, {name: depth for name, depth in depths.items() if depth}) for each in recordings]
    show(" ".join((Path(path).stem, *overrides)), router, loaded, cut)


def shallow(recording: Recording, depths: dict[str, int]) -> Recording:
    """The recording with drafts that are at most so deep, in that share of their time."""
    drafts = [
        {
            name: within(draft, Budget(max_depth=depths[name])) if name in depths else draft
            for name, draft in each.items()
        }
        for each in recording.drafts
    ]
    seconds = dict(recording.seconds)
    for name, depth in depths.items():
        whole = max(int(each[name].depths.max(initial=0)) for each in recording.drafts)
        seconds[name] *= min(1.0, depth / max(1, whole))
    return evolve(recording, drafts=drafts, seconds=seconds)


def show(name: str, router: Router, loaded: Pipeline, recordings: list[Recording]) -> None:
    """One line: speed, tokens a pass, and for each drafter its share of steps, its accepted tokens a step, and how many
    of its drafts were accepted to their full depth."""
    cost = loaded.parts.backend.cost
    recorded = {reading.tap: reading for reading in loaded.parts.readings}
    readings = {reading: recorded[reading.tap] for reading in router.needs.readings}
    played = [Replay(router, each, cost, loaded.spec.generation, readings).run() for each in recordings]
    metrics = sum((one.metrics for one in played), Metrics())
    whole = sum((one.whole for one in played), Counter[str]())
    plain = sum(len(each.tokens) for each in recordings) * cost(0)
    shares = ", ".join(
        f"{drafter} {steps / metrics.steps:.0%} "
        f"({metrics.accepted_by_drafter[drafter] / steps:.1f}, {whole[drafter] / steps:.0%} whole)"
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
