"""Finds installed plugins through the entry-point group `draftmux`. A broken one is recorded and disturbs no other."""

from __future__ import annotations

import traceback
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

import pluggy

from draftmux import hookspecs
from draftmux.registry import KINDS, BrokenPlugin, Entry, Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "draftmux"


@cache
def registry() -> Registry:
    """The plugins of this environment, found once a process."""
    return discover(entry_points(group=GROUP))


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Load entry points one by one into a registry."""
    found = Registry()
    for point in _unique(points):
        try:
            for entry in _entries(point):
                found.add(entry)
        except (Exception, SystemExit):
            package, version = _origin(point)
            found.broken.append(BrokenPlugin(package, version, point.name, traceback.format_exc()))
    return found


def _unique(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    """An editable install can list the same entry point twice; one is enough."""
    return list({(point.name, point.value, _origin(point)[0]): point for point in points}.values())


def _origin(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist is not None else ("unknown package", "?")


def _entries(point: EntryPoint) -> list[Entry]:
    """What one entry point registers. Each gets a plugin manager of its own, so a clash cannot reach another."""
    package, version = _origin(point)
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    manager.register(point.load(), name=point.name)
    manager.check_pending()
    entries: list[Entry] = []

    def register(kind: str, name: str, target: str, help: str = "") -> None:
        entries.append(Entry(kind, name, target, help, package, version, point.name))

    hooks: Any = manager.hook
    for kind in KINDS:
        getattr(hooks, f"register_{kind}s")(register=partial(register, kind))
    return entries
