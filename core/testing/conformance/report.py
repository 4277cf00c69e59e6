"""Checks, the order they run in, and what became of them. Knows nothing of plugins."""

from __future__ import annotations

import inspect
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attrs import frozen

from draftmux.errors import PluginError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Outcome = Literal["passed", "failed", "skipped", "doubtful"]
HERE = Path(__file__).parent
FIRST = "protocol"  # without it, every other check would only repeat that a member is missing


class ConformanceError(AssertionError):
    """A plugin fails the kit. The message names every failed check with its first counterexample; so does `report`."""

    def __init__(self, report: Report) -> None:
        self.report = report
        failed = report.failed
        told = "".join(f"\n\n{finding}" for finding in failed)
        super().__init__(f"{report.kind} '{report.plugin}' fails {len(failed)} of {len(report.findings)} checks{told}")


class ConformanceWarning(UserWarning):
    """A plugin keeps every promise, and does something that its author hardly meant."""


class NotApplicableError(Exception):
    """Raised by a check that has nothing to check in this plugin; the message says why."""


class DoubtError(Exception):
    """Raised by a check that found something which is allowed, and hardly meant."""


@frozen
class Finding:
    """What became of one check. `message` says why, unless it passed; `asks` is the check's own description."""

    check: str
    asks: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """The check, what it asks for, and what was found."""
        return f"[{self.check}] {self.asks}\n  {self.message}".rstrip()


@frozen
class Report:
    """The findings of one plugin, in the order of the checks."""

    kind: str
    plugin: str
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> list[Finding]:
        """Promises that were broken."""
        return [finding for finding in self.findings if finding.outcome == "failed"]

    @property
    def doubtful(self) -> list[Finding]:
        """What is allowed, and hardly meant: a drafter that never drafts, for one."""
        return [finding for finding in self.findings if finding.outcome == "doubtful"]

    def warn(self) -> None:
        """Say what is doubtful, as a warning at the line that asked for the report."""
        for finding in self.doubtful:
            warnings.warn(f"{self.kind} '{self.plugin}': {finding}", ConformanceWarning, stacklevel=4)

    def __str__(self) -> str:
        """A line for each check."""
        lines = [f"{self.kind} '{self.plugin}'"]
        for finding in self.findings:
            said = f": {finding.message}" if finding.message else ""
            lines.append(f"  {finding.outcome:8} {finding.check} ({finding.seconds:.2f} s){said}")
        return "\n".join(lines)


@frozen(eq=False)
class Check:
    """One promise. `run` raises AssertionError when a subject breaks it."""

    name: str
    asks: str
    run: Callable[[Any], None]

    def judge(self, subject: Any) -> Finding:
        """Run it; whatever the plugin raises is a finding too."""
        started = time.perf_counter()
        outcome, message = self._outcome(subject)
        return Finding(self.name, self.asks, outcome, message, time.perf_counter() - started)

    def _outcome(self, subject: Any) -> tuple[Outcome, str]:
        try:
            self.run(subject)
        except NotApplicableError as reason:
            return "skipped", str(reason)
        except DoubtError as doubt:
            return "doubtful", str(doubt)
        except AssertionError as error:
            return "failed", str(error) if _ours(error) else told(error)
        except Exception as error:
            return "failed", told(error)
        return "passed", ""


def _ours(error: BaseException) -> bool:
    """Whether the kit's own code raised it, in words; a plugin's own assertion needs its place too."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).parent in (HERE, HERE.parent)


def told(error: BaseException) -> str:
    """An exception, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f", in {frames[-1].name} at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{at}"


@frozen(eq=False)
class Checks:
    """The checks of one kind of plugin, by name, in the order in which they run."""

    kind: str
    all: Mapping[str, Check]

    @classmethod
    def of(cls, kind: str, runs: Iterable[Callable[[Any], None]]) -> Checks:
        """A check for each function, named as the function with dashes, and described by its docstring."""
        named = {run.__name__.strip("_").replace("_", "-"): run for run in runs}
        return cls(kind, {n: Check(n, " ".join((inspect.getdoc(run) or "").split()), run) for n, run in named.items()})

    def select(self, only: Iterable[str] | None, skip: Iterable[str]) -> list[Check]:
        """Those in `only` (None: all) and not in `skip`; PluginError for a name that no check has."""
        wanted = list(self.all) if only is None else list(only)
        for name in (*wanted, *(skip := tuple(skip))):
            if name not in self.all:
                raise PluginError(f"unknown check '{name}' of a {self.kind}{did_you_mean(name, self.all)}")
        return [check for name, check in self.all.items() if name in wanted and name not in skip]


def findings(checks: Iterable[Check], subject: Any) -> Iterator[Finding]:
    """One after the other; nothing follows when the protocol itself is broken."""
    for check in checks:
        finding = check.judge(subject)
        yield finding
        if finding.check == FIRST and finding.outcome == "failed":
            return
