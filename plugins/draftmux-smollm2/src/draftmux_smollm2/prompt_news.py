"""Invented news articles of 150 to 450 words with a request to summarize them. Must not know the topics' sentences."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from draftmux_smollm2.prompt_topics import GENERAL, POOLS, TOPICS
from draftmux_smollm2.prompt_words import Draw, lines

_ASKS = lines("""
Summarize:
Summarize the following article:
Summarize this news story in {one sentence|two sentences|three sentences|a short paragraph}.
Please write a short summary of this text.
What are the main points of this article? {Use bullet points.|List three.|Answer in a few sentences.}
Give me {the key facts|a brief overview} of the report below.
TL;DR of this article, please.
Write a {headline and a one-sentence summary|summary for a newsletter} for this story.
Shorten the following text to about <z:40-90/10> words.
""")


def _names_once(text: str, draw: Draw) -> str:
    """Whoever is named in full for the first time goes by the surname after that."""
    for number in ("", *"2345"):
        full, surname = draw.fill(f"<person{number}> <surname{number}>"), draw.fill(f"<surname{number}>")
        bare = re.compile(rf"(?<!{full.removesuffix(surname)}){surname}")
        text = bare.sub(full, text).replace(full, "\0", 1).replace(full, surname).replace("\0", full)
    return text


def article(rng: random.Random) -> str:
    """An opening, sentences of its topic in order, general ones up to the length drawn, and sometimes paragraphs."""
    topic = rng.choice(list(TOPICS.values()))
    side = rng.randrange(2)
    other = f"{2 - side}>"
    kept = [line.removeprefix(f"{side + 1}>") for line in topic[2:] if not line.startswith(other)]
    draw = Draw(rng, POOLS)
    sentences = [draw.fill(line) for line in (topic[side], *kept)]
    extra = [draw.fill(line) for line in GENERAL]
    words = rng.randint(165, 400)
    while _words(sentences) > words:
        sentences.pop(rng.randrange(1, len(sentences)))
    while _words(sentences) < max(words, 165) and extra:
        sentences.append(extra.pop(rng.randrange(len(extra))))
    size = rng.choice([2, 3, 4, 99, 99])
    paragraphs = (" ".join(sentences[i : i + size]) for i in range(0, len(sentences), size))
    return _names_once("\n\n".join(paragraphs), draw)


def _words(sentences: Sequence[str]) -> int:
    return len(" ".join(sentences).split())


def summarize(rng: random.Random) -> str:
    """An article with a request before or behind it."""
    text = article(rng)
    ask = Draw(rng, {}).fill(rng.choice(_ASKS))
    if rng.random() < 0.25 and not ask.endswith(":"):
        return f"{text}\n\n{ask}"
    return f"{ask}{rng.choice([' ', chr(10), chr(10) * 2])}{text}"
