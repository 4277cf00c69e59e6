"""Finds installed plugins through the entry-point group `draftmux`. A broken one is recorded and disturbs no other.

Knows who may be looked at (`DRAFTMUX_DISABLE_PLUGINS`, a file's list of packages), and imports nobody else.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cache, cached_property
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import define, frozen

import draftmux
from draftmux import hookspecs
from draftmux.errors import PluginError, did_you_mean, from_outside
from draftmux.registry import (
    KINDS,
    OWN,
    BrokenPlugin,
    Entry,
    LoadedPlugin,
    Registry,
    SkippedPlugin,
    one_line,
    package_name,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GROUP = "draftmux"
DISABLE = "DRAFTMUX_DISABLE_PLUGINS"
EVERYTHING = frozenset({"1", "all", "true", "yes", "on", "*"})
WORDS = frozenset({"all", "true"})  # of these, those that a mistyped word may have meant
NOTHING = frozenset({"0", "false", "no", "off"})
API = "draftmux_api"
_NAME = re.compile(r"\w[\w.-]{0,99}")  # a model's name must not look like a hub id, so there is no slash
_TARGET = re.compile(r"\w+(\.\w+)*:\w+")


@frozen
class Disabled:
    """What the user disabled: every package but draftmux itself, or some packages and entry points."""

    all: bool = False
    names: frozenset[str] = frozenset()  # in their normal form

    @classmethod
    def parse(cls, text: str) -> Disabled:
        """Read the environment variable: nothing or `0`, `1` or `all` (or another word for them), or a list."""
        names = frozenset(package_name(part.strip()) for part in text.split(",") if part.strip())
        return cls(bool(names & EVERYTHING), names - EVERYTHING - NOTHING)

    def reason(self, source: Source) -> str | None:
        """Why an entry point is left alone, if it is."""
        if source.own:
            return None
        if self.all:
            return f"disabled by --no-plugins or {DISABLE}=all; run without"
        for name in (source.package, source.name):
            if package_name(name) in self.names:
                return f"disabled by {DISABLE}; take '{one_line(name)}' out of it"
        return None


@define(eq=False)
class Source:
    """One entry point of a package, loaded when its outcome is asked for; `fault` says why there is none to load."""

    package: str
    version: str
    name: str
    point: EntryPoint | None = None
    fault: str = ""

    @classmethod
    def of(cls, point: EntryPoint) -> Source:
        """An entry point as Python's own list has it."""
        return cls(*_origin(point.dist), one_line(point.name), point)

    @property
    def own(self) -> bool:
        """Whether it comes with draftmux: any package may call itself that, so its module must be draftmux's too."""
        if self.point is None or package_name(self.package) != OWN:
            return False
        module = self.point.value.partition(":")[0].strip()
        return module == OWN or module.startswith(f"{OWN}.")

    @cached_property
    def outcome(self) -> tuple[list[Entry], LoadedPlugin | BrokenPlugin]:
        """What it registers: all of it, or, when anything goes wrong, nothing."""
        started = time.perf_counter()
        entries: list[Entry] = []
        if self.point is None:
            return entries, BrokenPlugin(self.package, self.version, self.name, self.fault)
        try:
            with redirect_stdout(sys.stderr):  # what a library prints when it is imported is no part of our output
                plugin = self.point.load()
                api = _api(self.point)
                entries = [Entry(*named, self.package, self.version, self.name) for named in _registered(self, plugin)]
        except BaseException as error:  # SystemExit, and panics of native extensions
            if from_outside(error):
                raise
            return [], BrokenPlugin(self.package, self.version, self.name, told(error), time.perf_counter() - started)
        return entries, LoadedPlugin(self.package, self.version, self.name, api, time.perf_counter() - started)


def registry(packages: Iterable[str] | None = None) -> Registry:
    """The plugins of this environment, found once a process. `packages`: only these, and draftmux's own."""
    allowed = None if packages is None else frozenset(map(package_name, packages))
    return _registry(os.environ.get(DISABLE, ""), allowed)


@contextmanager
def no_plugins() -> Iterator[None]:
    """Disable every package but draftmux itself, here and in the processes that are started here."""
    before = os.environ.get(DISABLE)
    os.environ[DISABLE] = "all"
    try:
        yield
    finally:
        del os.environ[DISABLE]
        if before is not None:
            os.environ[DISABLE] = before


def unknown_disabled() -> list[str]:
    """One sentence for each name that the user disabled, and that nobody has."""
    sources = [source for source in _installed() if not source.own]
    known = {source.package for source in sources} | {source.name for source in sources}
    wrong = Disabled.parse(os.environ.get(DISABLE, "")).names - {package_name(name) for name in known}
    return [
        f"{DISABLE}: no package or entry point besides draftmux's own is named '{one_line(name)}'"
        f"{did_you_mean(name, known | WORDS)}"
        for name in sorted(wrong)
    ]


def discover(points: Iterable[EntryPoint]) -> Registry:
    """Load entry points one by one into a registry."""
    return _gather([Source.of(point) for point in points], Disabled(), None)


@cache
def _registry(disable: str, allowed: frozenset[str] | None) -> Registry:
    return _gather(_installed(), Disabled.parse(disable), allowed)


def _gather(sources: Iterable[Source], disabled: Disabled, allowed: frozenset[str] | None) -> Registry:
    found = Registry()
    for source in _unique(sources):
        if reason := disabled.reason(source) or _unlisted(source, allowed):
            found.skipped.append(SkippedPlugin(source.package, source.version, source.name, reason))
            continue
        entries, became = source.outcome
        for entry in entries:
            found.add(entry)
        if isinstance(became, LoadedPlugin):
            found.loaded.append(became)
        else:
            found.broken.append(became)
    return found


def _unlisted(source: Source, allowed: frozenset[str] | None) -> str | None:
    if allowed is None or source.own:
        return None
    if package_name(source.package) == OWN:
        return f"the file's list 'plugins' cannot name it, since it calls itself {OWN} and is not; leave out the list"
    if package_name(source.package) in allowed:
        return None
    return f"the file's list 'plugins' leaves it out; add '{source.package}' to it"


@cache
def _installed() -> tuple[Source, ...]:
    """Every entry point of this environment, none of them loaded."""
    try:
        return tuple(map(Source.of, entry_points(group=GROUP)))
    except Exception:  # one package whose list cannot be read; the slow way leaves out that one only
        return tuple(source for distribution in distributions() for source in _sources(distribution))


def _sources(distribution: Distribution) -> list[Source]:
    try:
        return list(map(Source.of, distribution.entry_points.select(group=GROUP)))
    except Exception as error:
        return [Source(*_origin(distribution), "entry_points.txt", fault=told(error))]


def _unique(sources: Iterable[Source]) -> list[Source]:
    """An editable install can list the same entry point twice; the first is the one that Python imports."""
    found: dict[Any, Source] = {}
    for source in sources:
        value = None if source.point is None else source.point.value
        found.setdefault((source.name, value, package_name(source.package)), source)
    return list(found.values())


def _origin(distribution: Distribution | None) -> tuple[str, str]:
    """Name and version, whatever the package's metadata is."""
    unknown = {"Name": "unknown package", "Version": "?"}
    with suppress(Exception):  # no metadata, or none that can be read
        metadata: Any = distribution.metadata if distribution is not None else {}
        unknown |= {key: one_line(metadata[key]) or unknown[key] for key in unknown if key in metadata}
    return unknown["Name"], unknown["Version"]


def _api(point: EntryPoint) -> int:
    """The plugin API that the module of an entry point was written for; PluginError when this is another one."""
    api = getattr(sys.modules.get(point.module), API, 1)
    ours, oldest = hookspecs.PLUGIN_API, hookspecs.OLDEST_PLUGIN_API
    if type(api) is not int:
        raise PluginError(f"{API} of module '{point.module}' must be a whole number such as {ours}, not {api!r}")
    if api > ours:
        raise PluginError(
            f"it is written for plugin API {api}, and draftmux {draftmux.__version__} has plugin API {ours}; "
            "upgrade draftmux"
        )
    if api < oldest:
        raise PluginError(
            f"it is written for plugin API {api}, and draftmux {draftmux.__version__} supports {oldest} to {ours}; "
            "upgrade the package"
        )
    return api


def _registered(source: Source, plugin: Any) -> list[tuple[str, str, str, str]]:
    """What one entry point registers. Each gets a plugin manager of its own, so a clash cannot reach another."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=source.name)
    manager.check_pending()
    if not manager.get_hookcallers(plugin):
        raise PluginError("it has no hooks; mark register_drafters or so with draftmux.hookspecs.hookimpl")
    found: list[tuple[str, str, str, str]] = []
    hooks: Any = manager.hook
    for kind in KINDS:
        if returned := getattr(hooks, f"register_{kind}s")(register=_register(kind, found)):
            raise PluginError(f"register_{kind}s must call register and return nothing, not {returned[0]!r}")
    return found


def _register(kind: str, found: list[tuple[str, str, str, str]]) -> hookspecs.Register:
    """The callback of one hook."""

    def register(name: str, target: str, help: str = "") -> None:
        if not all(type(text) is str for text in (name, target, help)) or not _TARGET.fullmatch(target):
            raise PluginError(
                f"register takes three texts (name, 'package.module:Class', help), not {(name, target, help)}"
            )
        if not _NAME.fullmatch(name):
            raise PluginError(f"register takes a name of letters, digits, '-', '_' and '.', not {name!r}")
        found.append((kind, name, target, one_line(help)))

    return register
