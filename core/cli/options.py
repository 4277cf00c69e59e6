"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import click

Decorator = Callable[[Any], Any]

pipeline_argument: Decorator = click.argument("pipeline", metavar="PIPELINE")
set_option: Decorator = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Override a value of the file, e.g. --set models.target.dtype=float32. Repeatable.",
)
threads_option: Decorator = click.option(
    "--threads", type=click.IntRange(min=1), help="CPU threads for the model; default: torch's own choice."
)


def use_threads(threads: int | None) -> None:
    """Pin torch's CPU threads, if asked to."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def options_of(*classes: type) -> Callable[[Any], Any]:
    """A command-line option for every field of some attrs classes."""

    def decorate(command: Any) -> Any:
        for cls in reversed(classes):
            for attribute in reversed(attrs.fields(cls)):
                flag = "--" + attribute.name.replace("_", "-")
                about = {"type": type(attribute.default), "default": attribute.default, "show_default": True}
                command = click.option(flag, help=attribute.metadata["help"], **about)(command)
        return command

    return decorate


def taken(cls: type, given: dict[str, Any]) -> Any:
    """An attrs class from the command line's values; a usage error when they do not go together."""
    try:
        return cls(**{attribute.name: given[attribute.name] for attribute in attrs.fields(cls)})
    except ValueError as error:
        raise click.UsageError(" ".join(map(str, error.args[:1]))) from error
