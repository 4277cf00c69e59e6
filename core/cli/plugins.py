"""`draftmux plugins`: what is installed, what was left alone, and what could not be loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from attrs import asdict

from draftmux.cli.output import write, write_json
from draftmux.plugins import registry, unknown_disabled
from draftmux.registry import OWN, package_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmux.registry import BrokenPlugin, LoadedPlugin, Registry, SkippedPlugin

SLOW = 0.5  # seconds; every command imports every entry point


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: {plugins, loaded, broken, disabled, warnings}.")
def plugins(as_json: bool) -> None:
    """List every drafter, router, verifier, backend and named model, with its package."""
    found = registry()
    if as_json:
        write_json(_data(found))
        return
    for line in (*_table(found), *_notes(found)):
        write(f"{line}\n")


def _data(found: Registry) -> dict[str, list[Any]]:
    keys = ("kind", "name", "package", "version", "help")
    return {
        "plugins": [{key: getattr(entry, key) for key in keys} for entry in found],
        "loaded": [asdict(loaded) for loaded in found.loaded],
        "broken": [asdict(broken) for broken in found.broken],
        "disabled": [asdict(skipped) for skipped in found.skipped],
        "warnings": unknown_disabled(),
    }


def _table(found: Registry) -> Iterator[str]:
    rows = [("KIND", "NAME", "PACKAGE", ""), *((e.kind, e.name, f"{e.package} {e.version}", e.help) for e in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()


def _notes(found: Registry) -> Iterator[str]:
    tried: list[LoadedPlugin | BrokenPlugin] = [*found.loaded, *found.broken]
    for point in tried:
        if point.seconds > SLOW and package_name(point.package) != OWN:
            yield (
                f"\nSLOW: {_point(point)} took {point.seconds:.1f} s to load, and every command waits for it; "
                f"{point.package} should import heavy libraries such as torch inside functions"
            )
    for skipped in found.skipped:
        yield f"\nDISABLED: {_point(skipped)}: {skipped.reason}"
    for broken in found.broken:
        yield f"\nNOT LOADED: {_point(broken)}: {broken.reason}"
        yield "\n".join(f"    {line}" for line in broken.traceback.splitlines())
    for warning in unknown_disabled():
        yield f"\n{warning}"


def _point(point: LoadedPlugin | BrokenPlugin | SkippedPlugin) -> str:
    return f"{point.package} {point.version} (entry point {point.entry_point})"
