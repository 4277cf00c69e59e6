"""Word problems of one or two steps in the manner of GSM8K, generated, with their answers.

python docs/bench/cospec/word_problems.py --count 200 --seed 0 --out word-problems.jsonl
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import click

NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kim", "Lena")
THINGS = ("apples", "books", "pencils", "marbles", "stamps", "cookies", "tickets", "shells", "cards", "flowers")
BOXES = ("box", "bag", "basket", "shelf", "tray", "crate")


def problem(rng: random.Random) -> dict[str, str]:
    """One problem."""
    kind = rng.choice(("more", "less", "boxes", "boxes and more", "shared"))
    name, other = rng.sample(NAMES, 2)
    thing, box = rng.choice(THINGS), rng.choice(BOXES)
    many, few = rng.randrange(10, 21), rng.randrange(2, 10)
    count = rng.randrange(2, 6)
    texts = {
        "more": (f"{name} has {many} {thing}. {other} gives {name} {few} more.", many + few),
        "less": (f"{name} has {many} {thing} and gives {few} of them to {other}.", many - few),
        "boxes": (f"{name} has {few} of the same {box}, and in each are {count} {thing}.", few * count),
        "boxes and more": (
            f"{name} has {few} of the same {box} with {count} {thing} in each, and {many} {thing} besides.",
            few * count + many,
        ),
        "shared": (f"{few * count} {thing} are shared equally among {name} and {few - 1} friends.", count),
    }
    text, answer = texts[kind]
    owner = "each of them get" if kind == "shared" else f"{name} have now"
    question = f"{text} How many {thing} does {owner}?"
    return {"prompt": question, "reference": str(answer), "family": kind}


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=200, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(count: int, seed: int, out: Path) -> None:
    """One JSON object a line."""
    rng = random.Random(f"word problems {seed}")
    out.write_text("".join(json.dumps(problem(rng)) + "\n" for _ in range(count)), "utf-8")


if __name__ == "__main__":
    main()
