"""Finds installed plugins through the entry-point group `draftmux`. A broken one is recorded and disturbs no other."""

from __future__ import annotations

import re
import traceback
from functools import cache, partial
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import TYPE_CHECKING, Any

import pluggy

from draftmux import hookspecs
from draftmux.errors import PluginError
from draftmux.registry import KINDS, BrokenPlugin, Entry, Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

GROUP = "draftmux"
_TARGET = re.compile(r"[\w.]+:\w+")


@cache
def registry() -> Registry:
    """The plugins of this environment, found once a process."""
    broken: list[BrokenPlugin] = []
    try:
        points = list(entry_points(group=GROUP))
    except Exception:  # one package whose list cannot be read; the slow way leaves out that one only
        points = [point for distribution in distributions() for point in _points(distribution, broken)]
    found = discover(points)
    found.broken += broken
    return found


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Load entry points one by one into a registry."""
    found = Registry()
    for point in _unique(points):
        try:
            for entry in _entries(point):
                found.add(entry)
        except KeyboardInterrupt:
            raise
        except BaseException:  # SystemExit, and panics of native extensions
            found.broken.append(BrokenPlugin(*_origin(point.dist), point.name, traceback.format_exc()))
    return found


def _points(distribution: Distribution, broken: list[BrokenPlugin]) -> list[EntryPoint]:
    try:
        return list(distribution.entry_points.select(group=GROUP))
    except Exception:
        broken.append(BrokenPlugin(*_origin(distribution), "entry_points.txt", traceback.format_exc()))
        return []


def _unique(points: Iterable[EntryPoint]) -> list[EntryPoint]:
    """An editable install can list the same entry point twice; one is enough."""
    return list({(point.name, point.value, _origin(point.dist)[0]): point for point in points}.values())


def _origin(distribution: Distribution | None) -> tuple[str, str]:
    return (distribution.name, distribution.version) if distribution is not None else ("unknown package", "?")


def _entries(point: EntryPoint) -> list[Entry]:
    """What one entry point registers. Each gets a plugin manager of its own, so a clash cannot reach another."""
    package, version = _origin(point.dist)
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    plugin = point.load()
    manager.register(plugin, name=point.name)
    manager.check_pending()
    if not manager.get_hookcallers(plugin):
        raise PluginError(
            f"'{point.value}' has no hooks; mark register_drafters or so with draftmux.hookspecs.hookimpl"
        )
    entries: list[Entry] = []

    def register(kind: str, name: str, target: str, help: str = "") -> None:
        if not all(isinstance(text, str) for text in (name, target, help)) or not name or not _TARGET.fullmatch(target):
            raise PluginError(
                f"register takes three texts (name, 'package.module:Class', help), not {(name, target, help)}"
            )
        entries.append(Entry(kind, name, target, help, package, version, point.name))

    hooks: Any = manager.hook
    for kind in KINDS:
        getattr(hooks, f"register_{kind}s")(register=partial(register, kind))
    return entries
