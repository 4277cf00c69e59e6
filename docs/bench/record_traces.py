"""Records how many tokens each step drafted and had accepted, for throughput to be replayed on other machines.

    OMP_NUM_THREADS=2 python docs/bench/record_traces.py pld context-copy --limit 10 --max-new-tokens 128

Writes `traces.json` beside this file: for each pipeline, `[drafted, accepted]` of every step on the embedded model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from draftmux.bench.suites import SUITES
from draftmux.engine import step
from draftmux.pipeline import load

TRACES = Path(__file__).with_name("traces.json")


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--limit", type=int, default=10)
@click.option("--max-new-tokens", type=int, default=128)
def main(names: tuple[str, ...], limit: int, max_new_tokens: int) -> None:
    """Record pipelines NAMES on HumanEval."""
    traces = []
    for name in names:
        pipeline = load(name, [f"generation.max_new_tokens={max_new_tokens}"])
        steps: list[list[int]] = []
        original = step.observe

        def observe(parts: Any, session: Any, record: Any, steps: Any = steps, original: Any = original) -> None:
            steps.append([len(record.draft), len(record.committed) - 1])
            original(parts, session, record)

        step.observe = observe
        try:
            for row in SUITES["humaneval"]().first(limit).rows:
                pipeline.generate(row.turns[0])
        finally:
            step.observe = original
        traces.append({"name": name, "steps": steps})
        print(f"{name}: {len(steps)} steps, {1 + sum(a for _, a in steps) / len(steps):.2f} tokens a step")
    TRACES.write_text(json.dumps(traces), encoding="utf-8")


if __name__ == "__main__":
    main()
