"""`draftmux run`: generate text with a pipeline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftmux.cli.options import pipeline_argument, set_option, threads_option, use_threads
from draftmux.cli.output import write, write_json
from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftmux.pipeline import Pipeline
    from draftmux.results import Result


@click.command()
@pipeline_argument
@click.argument("stdin", required=False, type=click.Choice(["-"]), metavar="[-]")
@click.option("--prompt", "prompts", multiple=True, help="Text to continue or answer. Several run as one batch.")
@click.option(
    "--prompt-file", type=click.Path(dir_okay=False, path_type=Path), help="File whose whole text is the prompt."
)
@click.option("--json-schema", "schema", metavar="FILE", help="The text must be JSON that this schema describes.")
@click.option("--regex", metavar="PATTERN", help="The whole text must match this regular expression.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a result, instead of the text.")
@set_option
@threads_option
def run(
    pipeline: str,
    stdin: str | None,
    prompts: tuple[str, ...],
    prompt_file: Path | None,
    as_json: bool,
    **shared: Any,
) -> None:
    """Generate with PIPELINE, a file or the name of a shipped pipeline. `-` reads the prompt from standard input."""
    texts = _prompts(stdin, prompts, prompt_file)
    settings = _constraint(shared["schema"], shared["regex"])
    from draftmux.pipeline import load

    use_threads(shared["threads"])
    loaded = load(pipeline, shared["overrides"])
    if as_json:
        for result in loaded.generate(texts, **settings):
            write_json(as_dict(result))
    elif len(texts) == 1:
        _stream(loaded, texts[0], settings)
    else:
        for result in loaded.generate(texts, **settings):
            write(result.text + "\n")
            _summarise(result)


def _prompts(stdin: str | None, prompts: tuple[str, ...], prompt_file: Path | None) -> list[str]:
    texts = list(prompts)
    if prompt_file is not None:
        texts.append(_text(f"--prompt-file {prompt_file}", prompt_file.read_bytes))
    if stdin:
        texts.append(_text("standard input", _read_stdin))
    if not texts:
        raise click.UsageError("no prompt; give --prompt TEXT, --prompt-file FILE, or - for standard input")
    return texts


def _read_stdin() -> bytes:
    if sys.stdin is None:  # what Python makes of a descriptor that was closed before the start
        raise OSError("it is closed; give the prompt through a pipe, or with --prompt or --prompt-file")
    return sys.stdin.buffer.read()


def _text(name: str, read: Callable[[], bytes]) -> str:
    try:
        return read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{name} cannot be read as UTF-8 text: {error}") from error


def _constraint(schema: str | None, regex: str | None) -> dict[str, Any]:
    """Settings that the flags ask for."""
    if schema is not None and regex is not None:
        raise click.UsageError("--json-schema and --regex exclude each other; a text has one constraint")
    if schema is not None:
        name = f"--json-schema {schema}"
        try:
            return {"constraint": {"use": "json-schema", "schema": json.loads(_text(name, Path(schema).read_bytes))}}
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{name} is no JSON: {error}") from error
    return {} if regex is None else {"constraint": {"use": "regex", "pattern": regex}}


def _stream(pipeline: Pipeline, prompt: str, settings: dict[str, Any]) -> None:
    for delta in pipeline.stream(prompt, **settings):
        write(delta.text)
        if delta.result is not None:
            write("\n")
            _summarise(delta.result)


def _summarise(result: Result) -> None:
    lossy = "" if result.lossless else "; LOSSY: the text is not the target's own"
    mal = result.metrics.mean_acceptance_length
    click.echo(
        f"[{len(result.tokens)} tokens in {result.seconds:.1f} s, {len(result.tokens) / result.seconds:.1f} tokens/s, "
        f"mean acceptance length {mal:.2f}, ended by {result.finish_reason}{lossy}]",
        err=True,
    )
    for fault, times in result.metrics.faults.items():
        click.echo(f"[plugin fault, {times}x: {fault}]", err=True)
    asked = result.metrics.steps_by_drafter
    if asked and not any(asked.values()):
        click.echo(f"[no drafter ever had a draft: {', '.join(asked)}; this was plain decoding]", err=True)


def as_dict(result: Result) -> dict[str, Any]:
    """A result as plain data."""
    return {
        "request_id": result.request_id,
        "text": result.text,
        "tokens": list(result.tokens),
        "prompt_tokens": result.prompt_tokens,
        "finish_reason": result.finish_reason,
        "lossless": result.lossless,
        "seconds": result.seconds,
        "logprobs": list(result.logprobs) if result.logprobs is not None else None,
        "metrics": result.metrics.as_dict(),
    }
