"""Names of plugins and what they stand for. Imports a plugin's class only when somebody asks for that name."""

from __future__ import annotations

import re
import sys
import traceback
from contextlib import redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from draftmux.errors import PluginError, did_you_mean, from_outside

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("drafter", "router", "verifier", "backend", "constraint", "model", "task")
OWN = "draftmux"  # the package whose plugins are always there
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\].*?(?:\x07|\x1b\\|$))")  # colours, cursor moves, titles, links


@frozen
class Entry:
    """One registered name. `target` is `module:attribute`; package, version and entry point say who published it."""

    kind: str
    name: str
    target: str
    help: str
    package: str
    version: str
    entry_point: str

    def load(self) -> Any:
        """Import and return the target; PluginError with the original traceback when that fails."""
        module, _, attribute = self.target.partition(":")
        try:
            with redirect_stdout(sys.stderr):  # what a library prints when it is imported is no part of our output
                return getattr(import_module(module), attribute)
        except BaseException as error:  # SystemExit, and panics of native extensions
            if from_outside(error):
                raise
            raise PluginError(
                f"{self.kind} '{self.name}' of package {self.package} {self.version} (entry point {self.entry_point}) "
                f"could not be loaded from '{self.target}':\n{told(error)}"
            ) from error


@frozen
class LoadedPlugin:
    """An entry point that was loaded: the plugin API it was written for, and the seconds that its import took."""

    package: str
    version: str
    entry_point: str
    api: int
    seconds: float


@frozen
class BrokenPlugin:
    """An entry point that could not be loaded; `traceback` is the original one."""

    package: str
    version: str
    entry_point: str
    traceback: str
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        """Last line of the traceback that says something."""
        lines = (
            line.strip().lstrip("|+- ") for line in reversed(self.traceback.splitlines())
        )  # groups are drawn with bars
        return next(filter(None, lines), "it gives no reason")


@frozen
class SkippedPlugin:
    """An entry point that was left alone, so nobody knows what it would register; `reason` says how to have it."""

    package: str
    version: str
    entry_point: str
    reason: str


@define
class Registry:
    """Every known plugin, by kind and name, and what became of each entry point."""

    entries: dict[tuple[str, str], list[Entry]] = field(factory=dict)
    broken: list[BrokenPlugin] = field(factory=list)
    loaded: list[LoadedPlugin] = field(factory=list)
    skipped: list[SkippedPlugin] = field(factory=list)

    def add(self, entry: Entry) -> None:
        """Register an entry. A name given twice is kept twice, and refused when it is used."""
        self.entries.setdefault((entry.kind, entry.name), []).append(entry)

    def names(self, kind: str) -> list[str]:
        """Registered names of one kind, sorted."""
        return sorted(name for entry_kind, name in self.entries if entry_kind == kind)

    def packages(self) -> list[str]:
        """Every package that has an entry point, whatever became of it, sorted."""
        points: list[LoadedPlugin | BrokenPlugin | SkippedPlugin] = [*self.loaded, *self.broken, *self.skipped]
        return sorted({point.package for point in points})

    def find(self, kind: str, name: str) -> Entry:
        """The entry behind a name; PluginError when it is unknown or published twice."""
        found = self.entries.get((kind, name), [])
        if not found:
            raise PluginError(f"unknown {kind} '{name}'{did_you_mean(name, self.names(kind))}{self.suspects()}")
        if len(found) > 1:
            owners = " and ".join(f"{entry.package} {entry.version} ({entry.entry_point})" for entry in found)
            several = len({entry.package for entry in found}) > 1
            way_out = "uninstall one of them" if several else "report it to that package"
            raise PluginError(f"{kind} '{name}' is published by {owners}; {way_out}")
        return found[0]

    def suspects(self) -> str:
        """Who may have brought a name that is unknown, for the end of a message."""
        said = ""
        if self.skipped:
            lines = [f"{s.package} {s.version} (entry point {s.entry_point}): {s.reason}" for s in self.skipped]
            said += "\nThese packages were not looked at and may bring it:\n" + "\n".join(lines)
        if self.broken:
            lines = [f"{b.package} {b.version} (entry point {b.entry_point}):\n{b.traceback}" for b in self.broken]
            said += "\nThese packages could not be loaded and may have brought it: " + "\n".join(lines)
        return said

    def __iter__(self) -> Iterator[Entry]:
        order = {kind: rank for rank, kind in enumerate(KINDS)}
        for key in sorted(self.entries, key=lambda key: (order[key[0]], key[1])):
            yield from self.entries[key]


def package_name(name: str) -> str:
    """The normal form of a package's name, by which names are compared. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()  # packaging.utils does this too, but takes 30 ms to import


def one_line(text: str, limit: int = 200) -> str:
    """Foreign text that any terminal can show: one line, without escape sequences, surrogates or control characters."""
    shown = "".join(char if char.isprintable() else " " for char in _ESCAPE.sub("", text))
    line = " ".join(shown.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def told(error: BaseException) -> str:
    """The traceback of an error, as text that any terminal can show; some errors cannot even be formatted."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException as failure:
        if from_outside(failure):
            raise
        text = "Traceback (most recent call last):\nan exception that raises another when it is shown"
    lines = _ESCAPE.sub("", text).splitlines()
    return "".join("".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line) + "\n" for line in lines)
