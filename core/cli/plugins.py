"""`draftmux plugins`: what is installed, and what could not be loaded."""

from __future__ import annotations

import json

import click

from draftmux.plugins import registry


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: {plugins, broken}.")
def plugins(as_json: bool) -> None:
    """List every drafter, router, verifier, backend and named model, with its package."""
    found = registry()
    if as_json:
        listed = [
            {"kind": e.kind, "name": e.name, "package": e.package, "version": e.version, "help": e.help} for e in found
        ]
        broken = [
            {"package": b.package, "version": b.version, "entry_point": b.entry_point, "traceback": b.traceback}
            for b in found.broken
        ]
        click.echo(json.dumps({"plugins": listed, "broken": broken}, ensure_ascii=False))
        return
    rows = [("KIND", "NAME", "PACKAGE", ""), *((e.kind, e.name, f"{e.package} {e.version}", e.help) for e in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        click.echo("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip())
    for b in found.broken:
        click.echo(f"\nNOT LOADED: {b.package} {b.version} (entry point {b.entry_point}): {b.reason}")
        click.echo("".join(f"    {line}\n" for line in b.traceback.splitlines()), nl=False)
