"""Names of plugins and what they stand for. Imports a plugin's class only when somebody asks for that name."""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from draftmux.errors import PluginError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("drafter", "router", "verifier", "backend", "model")


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
            return getattr(import_module(module), attribute)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, and panics of native extensions
            raise PluginError(
                f"{self.kind} '{self.name}' of package {self.package} {self.version} (entry point {self.entry_point}) "
                f"could not be loaded from '{self.target}':\n{traceback.format_exc()}"
            ) from error


@frozen
class BrokenPlugin:
    """An entry point that could not be loaded; `traceback` is the original one."""

    package: str
    version: str
    entry_point: str
    traceback: str

    @property
    def reason(self) -> str:
        """Last line of the traceback."""
        return self.traceback.strip().splitlines()[-1]


@define
class Registry:
    """Every known plugin, by kind and name, and the entry points that failed."""

    entries: dict[tuple[str, str], list[Entry]] = field(factory=dict)
    broken: list[BrokenPlugin] = field(factory=list)

    def add(self, entry: Entry) -> None:
        """Register an entry. A name given twice is kept twice, and refused when it is used."""
        self.entries.setdefault((entry.kind, entry.name), []).append(entry)

    def names(self, kind: str) -> list[str]:
        """Registered names of one kind, sorted."""
        return sorted(name for entry_kind, name in self.entries if entry_kind == kind)

    def find(self, kind: str, name: str) -> Entry:
        """The entry behind a name; PluginError when it is unknown or published by two packages."""
        found = self.entries.get((kind, name), [])
        if not found:
            raise PluginError(f"unknown {kind} '{name}'{did_you_mean(name, self.names(kind))}{self._suspects()}")
        if len(found) > 1:
            owners = " and ".join(f"{entry.package} {entry.version} ({entry.entry_point})" for entry in found)
            raise PluginError(f"{kind} '{name}' is published by {owners}; uninstall one of them")
        return found[0]

    def _suspects(self) -> str:
        if not self.broken:
            return ""
        lines = [f"{b.package} {b.version} (entry point {b.entry_point}):\n{b.traceback}" for b in self.broken]
        return "\nThese packages could not be loaded and may have brought it: " + "\n".join(lines)

    def __iter__(self) -> Iterator[Entry]:
        order = {kind: rank for rank, kind in enumerate(KINDS)}
        for key in sorted(self.entries, key=lambda key: (order[key[0]], key[1])):
            yield from self.entries[key]
