"""Contenders of the routers' table against each other, prompt by prompt: ratios of tokens a second with 95 % intervals.

    python docs/bench/switchsd/paired.py FOLDER switchsd:ngram-gate cost-aware:eagle3

FOLDER is what table.sh has written. The last figure is the geometric mean of the columns' ratios.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

COLUMNS = ("humaneval", "gsm8k", "cnn_dm")
DRAWS = 10_000


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.argument("pairs", nargs=-1)
def main(folder: Path, pairs: tuple[str, ...]) -> None:
    """One line a pair."""
    columns = {name: json.loads((folder / f"{name}.json").read_text("utf-8"))["runs"] for name in COLUMNS}
    for pair in pairs:
        rng, logs, parts = np.random.default_rng(0), [], []
        for name, runs in columns.items():
            units = {Path(run["pipeline"]).stem: run["units"] for run in runs}
            one, two = (units[each] for each in pair.split(":"))
            count = len(one)
            drawn = np.vstack([np.ones(count), rng.multinomial(count, [1 / count] * count, size=DRAWS)])
            logs.append(np.log(rates(drawn, one) / rates(drawn, two)))
            parts.append(f"{name} {told(logs[-1])}")
        click.echo(f"{pair}: {'; '.join(parts)}; all {told(np.mean(logs, axis=0))}")


def rates(drawn: Any, units: list[dict[str, float]]) -> Any:
    """Tokens a second of every draw, `(draws,)`; the first row of `drawn (draws, units)` is all units once."""
    return (drawn @ [unit["tokens"] for unit in units]) / (drawn @ [unit["seconds"] for unit in units])


def told(logs: Any) -> str:
    """A ratio and its interval."""
    low, high = np.exp(np.percentile(logs[1:], (2.5, 97.5)))
    return f"{np.exp(logs[0]):.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
