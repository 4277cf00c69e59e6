"""Writes problems as `draftmux train arbiter` reads them:  python -m draftmux_arbiter_lab --seed 1000000 --out FILE."""

from __future__ import annotations

import json
from pathlib import Path

import click

from draftmux_arbiter_lab.problems import FAMILIES, problems


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=4000, show_default=True)
@click.option("--seed", type=int, required=True, help="Below 10**6 are what the pair was trained on.")
@click.option("--family", "families", type=click.Choice(FAMILIES), multiple=True, help="Repeatable; all by default.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(count: int, seed: int, families: tuple[str, ...], out: Path) -> None:
    """One JSON object a line, in turn of the families."""
    rows = [each.row for each in problems(count, seed, families=families or FAMILIES)]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()
