"""`draftmux schema`: JSON Schema of the pipeline file, for editors."""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of the pipeline file, with the options of every installed plugin."""
    from draftmux.config.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
