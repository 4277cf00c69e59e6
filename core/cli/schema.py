"""`draftmux schema`: JSON Schema of the pipeline file, for editors."""

from __future__ import annotations

import click

from draftmux.cli.output import write_json


@click.command()
def schema() -> None:
    """Print the JSON Schema of the pipeline file, with the options of every installed plugin."""
    from draftmux.config.schema import json_schema

    write_json(json_schema(), indent=2)
