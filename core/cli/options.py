"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
