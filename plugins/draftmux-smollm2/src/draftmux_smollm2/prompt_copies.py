"""Prompts that differ in how much of them an answer repeats, for probes that tell copying from chance (2609.20186).

`copies` ask for what is in the prompt, `mixtures` for something new around it, `inventions` for neither. Must not know
how labels are made: those are read off the answers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence

from draftmux_smollm2.prompt_chat import chat
from draftmux_smollm2.prompt_code import draw_function, evaluate, source, stub
from draftmux_smollm2.prompt_math import math
from draftmux_smollm2.prompt_news import article
from draftmux_smollm2.prompt_words import Draw, lines

Text = Callable[[random.Random], str]
WORDS = (40, 130)  # of a passage

_VERBATIM = lines("""
Repeat the following text {word for word|exactly|verbatim}:
Copy this text without changing anything:
Please type out the text below again, {exactly as it is|with every word as it stands}.
Print this passage {once|twice}, word for word:
""")
_EDITS = lines("""
Replace every "<old>" by "<new>" in the text below and print the whole text.
Print this text again with "<new>" in place of "<old>".
The word "<old>" should be "<new>". Write the corrected text in full.
""")
_QUOTES = lines("""
Quote the {first|last|longest|shortest} sentence of the text below, word for word.
Copy out the {two|three} most important sentences of this text exactly as they are written.
Which sentences of the text contain numbers? Quote them.
List every sentence of this text as an item of a numbered list, unchanged.
Answer with a quotation from the text only: what is it about?
""")
_RENAMES = lines("""
Rename `<old>` to `<new>` in this code and print the whole file.
Print this file again with the function `<old>` called `<new>`.
Change the name `<old>` to `<new>` everywhere. Return the complete code.
""")
_REPRINTS = lines("""
Add a line `# checked` at the top of this file and print all of it.
Print this file again with type hints left as they are and a blank line between the functions.
Return this code unchanged, and then say in one sentence what it does.
Add a comment above each function and print the complete file.
""")
_FIELDS = lines("""
Change the {price|amount} of "<old>" to <a:11-99> and print the whole JSON.
Set "in_stock" of "<old>" to false and return the complete JSON.
Add an item "<new>" with the price <a:11-99> to this JSON and print all of it.
Remove "<old>" from this JSON and print the rest unchanged.
""")
_LISTS = lines("""
Copy this list and add {two|three} more items:
Write this list again in {reverse|alphabetical} order:
Turn this list into a numbered list:
Repeat the list, with the word "<new>" as the last item:
""")
_AROUND = lines("""
Summarize the text below in two sentences and support each with a quotation.
Write {two|three} questions about this text, each followed by the sentence that answers it.
Explain this text to a friend, quoting its most important words.
Write a short reply to this text. Quote the passages that you reply to.
List the names in this text and quote what is said about each.
""")
_CODE_AROUND = lines("""
Write {three|four} unit tests for this code:
Explain this code line by line, repeating each line before you explain it.
Rewrite this code with better names and explain what you changed.
Show how to call these functions, then print them again with docstrings.
Translate the comments of this code into English, keep the code, and add a main function.
""")
_GIVENS = lines("""
First repeat the numbers that are given, then solve the problem step by step.
Restate the problem in your own words and solve it.
Write down what is known, then the calculation, then the answer.
""")


def copies(rng: random.Random, text: Text) -> str:
    """An answer repeats most of the prompt."""
    return rng.choice((_verbatim, _edited, _quoted, _renamed, _reprinted, _fixed, _fields, _listed))(rng, text)


def mixtures(rng: random.Random, text: Text) -> str:
    """An answer repeats some of the prompt, and says something new."""
    kind = rng.randrange(4)
    if kind == 0:
        return _with(rng, _AROUND, text(rng))
    if kind == 1:
        return _with(rng, _CODE_AROUND, _file(rng)[0])
    return stub(rng) if kind == 2 else f"{math(rng)}\n\n{rng.choice(_GIVENS)}"


def inventions(rng: random.Random, text: Text) -> str:
    """An answer that the prompt does not hold."""
    return chat(rng)


def passage(given: Sequence[str]) -> Text:
    """What draws whole sentences of one of some texts, or of an invented article: 40 to 130 words, or all there are."""

    def draw(rng: random.Random) -> str:
        sentences = re.split(r"(?<=[.!?])\s+", (rng.choice(given) if given else article(rng)).strip())
        words, start = rng.randint(*WORDS), rng.randrange(max(1, len(sentences) - 3))
        kept = sentences[start : start + 1]
        for sentence in sentences[start + 1 :]:
            if len(" ".join([*kept, sentence]).split()) > words:
                break
            kept.append(sentence)
        return " ".join(" ".join(kept).split()[: 2 * WORDS[1]])

    return draw


def _with(rng: random.Random, asks: Sequence[str], text: str, **slots: str) -> str:
    """A request before the text, or behind it."""
    ask = Draw(rng, {name: [value] for name, value in slots.items()}).fill(rng.choice(asks))
    behind = rng.random() < 0.3 and not ask.endswith(":")
    return f"{text}\n\n{ask}" if behind else f"{ask}\n\n{text}"


def _verbatim(rng: random.Random, text: Text) -> str:
    return _with(rng, _VERBATIM, text(rng))


def _quoted(rng: random.Random, text: Text) -> str:
    return _with(rng, _QUOTES, text(rng))


def _edited(rng: random.Random, text: Text) -> str:
    found = text(rng)
    words = sorted(set(re.findall(r"\b[a-z]{5,}\b", found))) or ["the"]
    return _with(rng, _EDITS, found, old=rng.choice(words), new=Draw(rng, {}).fill("<food>"))


def _file(rng: random.Random) -> tuple[str, list[str]]:
    """Python code of two or three functions, and their names."""
    functions = {each.name: each for each in (draw_function(rng) for _ in range(rng.randint(2, 3)))}
    code = "\n\n\n".join(source(rng, each, each.expression) for each in functions.values())
    return f"```python\n{code}\n```", list(functions)


def _renamed(rng: random.Random, text: Text) -> str:
    code, names = _file(rng)
    new = f"{rng.choice(('compute', 'get', 'find', 'make'))}_{rng.choice(('value', 'answer', 'result', 'items'))}"
    return _with(rng, _RENAMES, code, old=rng.choice(names), new=new)


def _reprinted(rng: random.Random, text: Text) -> str:
    return _with(rng, _REPRINTS, _file(rng)[0])


def _fixed(rng: random.Random, text: Text) -> str:
    function = draw_function(rng)
    given, right = function.examples[0]
    wrong, name = function.expression, function.params[0]
    code = f"{source(rng, function, wrong)}\n\n\nprint({name}({given}))"
    assert evaluate(function, given) == right
    return (
        f"The last line of this file calls `{name}`, but the function is called `{function.name}`. Fix it and print "
        f"the whole file.\n\n```python\n{code}\n```"
    )


def _fields(rng: random.Random, text: Text) -> str:
    draw = Draw(rng, {})
    names = [draw.fill(f"<food{n}>") for n in ("", *range(2, rng.randint(4, 6)))]
    rows = [{"name": name, "price": rng.randint(2, 90), "in_stock": rng.random() < 0.7} for name in names]
    return _with(rng, _FIELDS, json.dumps(rows, indent=2), old=rng.choice(names), new=draw.fill("<product>"))


def _listed(rng: random.Random, text: Text) -> str:
    draw, kind = Draw(rng, {}), rng.choice(("animal", "food", "job", "hobby", "city", "country", "science", "product"))
    items = [draw.fill(f"<{kind}{n}>") for n in ("", *range(2, rng.randint(6, 12)))]
    return _with(rng, _LISTS, "\n".join(f"- {item}" for item in items), new=draw.fill("<thing>"))
