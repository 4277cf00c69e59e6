"""`draftmux check`: all faults of a pipeline file at once, or what it resolves to."""

from __future__ import annotations

import json
from typing import Any

import click

from draftmux.cli.options import set_option
from draftmux.cli.output import write, write_json
from draftmux.config.load import Row, describe, read_pipeline
from draftmux.errors import PipelineError
from draftmux.types import UNLIMITED


@click.command()
@click.argument("pipeline", metavar="PIPELINE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: {ok, faults} or {ok, resolved}.")
@set_option
@click.pass_context
def check(ctx: click.Context, pipeline: str, as_json: bool, overrides: tuple[str, ...]) -> None:
    """Say everything that is wrong with PIPELINE, each fault with its line, or show what it resolves to."""
    try:
        rows = describe(read_pipeline(pipeline, overrides))
    except PipelineError as error:
        _faults(error, as_json)
        ctx.exit(1)
    if as_json:
        write_json({"ok": True, "resolved": [list(row) for row in rows]})
    else:
        _resolved(list(rows))


def _faults(error: PipelineError, as_json: bool) -> None:
    if as_json:
        write_json({"ok": False, "faults": list(error.faults)})
        return
    for fault in error.faults:
        write(f"{fault}\n")
    click.echo(f"{len(error.faults)} fault{'s' if len(error.faults) != 1 else ''}", err=True)


def _resolved(rows: list[Row]) -> None:
    for row in rows:
        part = f"{row.part}.{row.name}" if row.name else row.part
        package = f"  ({row.package})" if row.package else ""
        write(f"{part:<17} {row.value}{package}\n")
        for name, value in (row.options or {}).items():
            write(f"    {name}: {shown(value)}\n")


def shown(value: Any) -> str:
    """An option's value as one would write it in the file."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(item)}" for key, item in value.items()) + "}"
    return "unlimited" if value == UNLIMITED else json.dumps(value, ensure_ascii=False)
