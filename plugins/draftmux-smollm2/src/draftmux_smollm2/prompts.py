"""Chat prompts that the trained parts for SmolLM2-135M-Instruct learn from: `python -m draftmux_smollm2.prompts`.

All of them are composed here; none comes from a benchmark. Must not know the model or how it is trained.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from draftmux_smollm2.prompt_chat import chat
from draftmux_smollm2.prompt_code import code
from draftmux_smollm2.prompt_math import math
from draftmux_smollm2.prompt_news import summarize

FAMILIES: Mapping[str, tuple[float, Callable[[random.Random], str]]] = {
    "code": (0.25, code),
    "math": (0.25, math),
    "summarize": (0.15, summarize),
    "chat": (0.35, chat),
}
_TRIES = 1000


def prompts(count: int, seed: int, families: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """`count` different prompts of `families`, or all, each one `{"id", "family", "messages"}`; the same for a seed."""
    rng = random.Random(seed)
    families = families or tuple(FAMILIES)
    weights = [FAMILIES[family][0] for family in families]
    seen: set[str] = set()
    for _ in range(count):
        family = rng.choices(families, weights)[0]
        text = _new(FAMILIES[family][1], rng, seen)
        seen.add(text)
        yield {"id": _id(text), "family": family, "messages": [{"role": "user", "content": text}]}


def _new(draw: Callable[[random.Random], str], rng: random.Random, seen: set[str]) -> str:
    for _ in range(_TRIES):
        text = draw(rng)
        if text not in seen:
            return text
    raise click.ClickException(f"no new prompt in {_TRIES} draws after {len(seen)} prompts; ask for fewer with --count")


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=6000, show_default=True, help="Number of prompts.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same prompts.")
@click.option(
    "--family",
    "families",
    type=click.Choice(list(FAMILIES)),
    multiple=True,
    help="Only prompts of this family; may be given more than once. All of them unless given.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="JSON Lines file to write.",
)
def main(count: int, seed: int, families: tuple[str, ...], out: Path) -> None:
    """Write chat prompts to train drafting parts on, one JSON object a line."""
    with out.open("w", encoding="utf-8", newline="\n") as file:
        for prompt in prompts(count, seed, families):
            file.write(json.dumps(prompt, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
