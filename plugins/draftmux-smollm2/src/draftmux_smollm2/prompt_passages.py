"""Requests about passages of texts that are given, long ones too. Must not know where the texts are from."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from draftmux_smollm2.prompt_words import Draw, lines

WORDS = (60, 750)  # of a passage
_ASKS = lines("""
Summarize:
Summarize the following text{:| in {one sentence|two sentences|three sentences|a short paragraph}:}
Please write a short summary of this text:
What are the main points of this text? {Use bullet points.|List three.|Answer in a few sentences.}
Give me {the key facts|a brief overview|an outline} of the text below.
TL;DR:
Write a headline for this text{.| and explain it in one sentence.}
Which {people|places|numbers and dates|organizations} are mentioned in the text below? {Make a list.|Answer in JSON.}
Rewrite this text {in simple words|for a ten-year-old|in the style of a news report|in your own words}.
What {problem|goal|argument} does the speaker {describe|name} in this passage?
Quote the {two|three} most important sentences of this text and say why they matter.
Write {three|five} questions that a teacher could ask about this passage{.|, with short answers.}
What is the tone of this passage? {Give examples.|Explain in two sentences.}
Write a {short reply to|letter about|social media post about} the text below.
Explain the background of this passage {in a few sentences|to someone who does not know it}.
""")


def passages(texts: Sequence[str]) -> Callable[[random.Random], str]:
    """What draws a prompt about a passage of one of `texts`: whole sentences, 60 to 750 words or all the text has."""
    split = [list(_sentences(text)) for text in texts]
    weights = [len(sentences) for sentences in split]

    def draw(rng: random.Random) -> str:
        text, ask = _passage(rng.choices(split, weights)[0], rng), Draw(rng, {}).fill(rng.choice(_ASKS))
        behind = rng.random() < 0.3 and not ask.endswith(":")
        return f"{text}\n\n{ask}" if behind else f"{ask}{rng.choice([' ', chr(10) * 2])}{text}"

    return draw


def _sentences(text: str) -> Iterator[str]:
    """Sentences, those of more words than a passage may have in pieces (verse, lists and tables have no full stops)."""
    for sentence in re.split(r"(?<=[.!?])\s+", text.strip()):
        words = list(re.finditer(r"\S+", sentence))
        for at in range(0, len(words), WORDS[1]):
            yield sentence[words[at].start() : words[min(at + WORDS[1], len(words)) - 1].end()]


def _passage(sentences: Sequence[str], rng: random.Random) -> str:
    """Sentences in a row of a random number of words, from where so many are left, or from the first."""
    counts = [len(sentence.split()) for sentence in sentences]
    left = list(accumulate(reversed(counts)))[::-1]
    words = rng.randint(*WORDS)
    start = rng.choice([at for at, rest in enumerate(left) if rest >= words] or [0])
    end = next((at for at in range(start, len(counts)) if left[start] - left[at] >= words), len(counts))
    return " ".join(sentences[start:end])
