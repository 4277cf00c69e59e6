"""Writes problems as `draftmux train arbiter` reads them:  python -m draftmux_arbiter_lab --seed 1000000 --out FILE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from draftmux_arbiter_lab.problems import FAMILIES, STEPS, problems


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=4000, show_default=True)
@click.option("--seed", type=int, required=True, help="Below 10**6 are what the pair was trained on.")
@click.option("--family", "families", type=click.Choice(FAMILIES), multiple=True, help="Repeatable; all by default.")
@click.option(
    "--steps", type=click.IntRange(min=1), nargs=2, default=STEPS, show_default=True, help="Of a problem: from, to."
)
@click.option("--new", is_flag=True, help="Only problems that neither model of the pair has learned from.")
@click.option("--without", type=click.Path(exists=True, path_type=Path), multiple=True, help="Nor of this file.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(new: bool, without: tuple[Path, ...], out: Path, count: int, **more: Any) -> None:
    """One JSON object a line, in turn of the families, each problem once."""
    if more["steps"][0] > more["steps"][1]:
        raise click.BadParameter(f"{more['steps'][0]} is more than {more['steps'][1]}", param_hint="--steps")
    met = {json.loads(line)["prompt"] for path in without for line in path.read_text("utf-8").splitlines()}
    if new:
        from draftmux_arbiter_lab.train_pair import learned_from

        met |= learned_from()
    rows: dict[str, dict[str, str]] = {}
    for each in problems(4 * count + 100, more["seed"], families=more["families"] or FAMILIES, steps=more["steps"]):
        if each.question not in met and len(rows) < count:
            rows.setdefault(each.question, each.row)
    out.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), "utf-8")


if __name__ == "__main__":
    main()
