"""Chat prompts that the trained parts for SmolLM2-135M-Instruct learn from: `python -m draftmux_smollm2.prompts`.

They are in English and good for any other target, too.

All of them are composed here, of texts that are given or none; none comes from a benchmark. Must not know the model or
how it is trained.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from draftmux.errors import DraftmuxError
from draftmux.training.prompts import read_prompts
from draftmux_smollm2.prompt_chat import chat
from draftmux_smollm2.prompt_code import code
from draftmux_smollm2.prompt_copies import copies, inventions, mixtures, passage
from draftmux_smollm2.prompt_math import math
from draftmux_smollm2.prompt_news import summarize
from draftmux_smollm2.prompt_passages import passages

Family = Callable[[random.Random], str]

FAMILIES: Mapping[str, tuple[float, Family]] = {
    "code": (0.25, code),
    "math": (0.25, math),
    "summarize": (0.15, summarize),
    "chat": (0.35, chat),
}
COPY_DIVERSITY: Mapping[str, tuple[float, Callable[[random.Random, Family], str]]] = {
    "copy": (0.4, copies),
    "mixed": (0.3, mixtures),
    "invented": (0.3, inventions),
}
_TRIES = 1000


def prompts(
    count: int, seed: int, families: Sequence[str] = (), texts: Sequence[str] = (), copying: bool = False
) -> Iterator[dict[str, Any]]:
    """`count` different prompts, each one `{"id", "family", "messages"}`; the same for a seed.

    They are of `families`, or all; or, where there are `texts`, requests about passages of those. With `copying` they
    are those that a probe learns from, with passages of `texts` if there are some.
    """
    rng = random.Random(seed)
    chosen: dict[str, tuple[float, Family]] = {name: FAMILIES[name] for name in families or FAMILIES}
    if copying:
        of = passage(texts)
        chosen = {name: (share, _quoting(family, of)) for name, (share, family) in COPY_DIVERSITY.items()}
    elif texts:
        chosen = {"passages": (1.0, passages(texts))}
    weights = [weight for weight, _ in chosen.values()]
    seen: set[str] = set()
    for _ in range(count):
        family = rng.choices(list(chosen), weights)[0]
        text = _new(chosen[family][1], rng, seen)
        seen.add(text)
        yield {"id": _id(text), "family": family, "messages": [{"role": "user", "content": text}]}


def _quoting(family: Callable[[random.Random, Family], str], text: Family) -> Family:
    """The family with passages of that kind."""
    return lambda rng: family(rng, text)


def read_texts(path: Path) -> list[str]:
    """The user's texts of a JSON Lines file of chats, or all of another file; ClickException if it has none."""
    try:
        if path.suffix == ".jsonl":
            texts = [prompt.messages[-1]["content"] for prompt in read_prompts(str(path))]
        else:
            texts = [path.read_text("utf-8-sig")]
    except (DraftmuxError, OSError, ValueError) as error:
        raise click.ClickException(
            f"--texts {path}: {error}; give a text in UTF-8, or chats in a .jsonl file"
        ) from error
    if not any(text.strip() for text in texts):
        raise click.ClickException(f"--texts {path}: it holds no text")
    # Half of a surrogate pair is no text that could be written again.
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts if text.strip()]


def _new(draw: Family, rng: random.Random, seen: set[str]) -> str:
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
    "--texts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Only requests about passages of this text, or of the texts of a .jsonl file of chats. Repeatable.",
)
@click.option("--copying", is_flag=True, help="Prompts for `train probe`: answers repeat much, some or none of them.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="JSON Lines file to write.",
)
def main(count: int, seed: int, families: tuple[str, ...], texts: tuple[Path, ...], copying: bool, out: Path) -> None:
    """Write chat prompts to train drafting parts on, one JSON object a line."""
    if families and copying:
        raise click.UsageError("--family and --copying are two kinds of prompts: make two files")
    if families and texts:
        raise click.UsageError("--family and --texts are two kinds of prompts: make two files, and join them")
    given = [text for path in texts for text in read_texts(path)]
    lines = [json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts(count, seed, families, given, copying)]
    out.write_text("".join(lines), "utf-8", newline="\n")


if __name__ == "__main__":
    main()
