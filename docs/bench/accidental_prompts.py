"""Prompts full of accidental repetitions: short stretches come again and again, and go on in another way each time.

    python docs/bench/accidental_prompts.py --count 20 --out accidental.jsonl
    draftmux bench pld cost-aware bandit --prompts accidental.jsonl --max-new-tokens 128 --threads 2 \
        --set generation.temperature=1.3

A passage is cut into stretches of two to four words, which are put together at random, several times over; a question
follows that has nothing to do with them. What an answer begins after such a stretch is hardly ever what stood behind it
before, so whoever copies at every match pays for it. At a temperature above 1, that is: greedily a small model soon
repeats its own answer, and copies of that are right.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import click

PASSAGES = (
    "The old bridge over the river was closed on Monday because the town found cracks in two of its pillars. Drivers "
    "have to take the road through the valley until the work is done, and the mayor asked everyone to be patient.",
    "A good garden begins with the soil, and the soil begins with leaves, rain and time. Most plants want light in the "
    "morning and shade in the afternoon, and all of them want water that does not stay at their roots.",
    "The library keeps its oldest books in a cool room below the street. Readers may ask for them in the morning, and "
    "a person who works there brings them up one at a time, with gloves, and stays until the reader is done.",
    "When the train stopped between two stations, the people in it looked at each other for the first time that day. A "
    "child laughed, an old man told a story about snow, and soon the whole car was talking about the winter.",
)
QUESTIONS = (
    "Give me three tips for a good night's sleep.",
    "How do I make pancakes for four people?",
    "Explain what inflation is to a child.",
    "Write a short poem about the sea.",
    "What are the advantages of learning a second language?",
    "How does a vaccine work?",
    "Write a polite email that asks for a day off.",
    "Why is the sky blue?",
    "Name five famous inventors and what they made.",
    "What should I know before I adopt a dog?",
)


@click.command()
@click.option("--count", type=click.IntRange(min=1), default=20)
@click.option("--seed", type=int, default=0)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(count: int, seed: int, out: Path) -> None:
    """Write them, one chat a line."""
    rng = random.Random(seed)
    rows = [{"id": f"accidental-{number}", "turns": [prompt(rng)]} for number in range(count)]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def prompt(rng: random.Random) -> str:
    """Stretches of a passage in random order, four times over, and a question."""
    words = rng.choice(PASSAGES).split()
    stretches = []
    while words:
        size = rng.randint(2, 4)
        stretches.append(" ".join(words[:size]))
        words = words[size:]
    salad = " ".join(" ".join(rng.sample(stretches, len(stretches))) for _ in range(4))
    return f"Notes: {salad}\n\nNever mind the notes. {rng.choice(QUESTIONS)}"


if __name__ == "__main__":
    main()
