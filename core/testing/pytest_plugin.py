"""The fixture `conformance` for whoever tests a plugin. Imports pytest alone, so that test suites start no slower."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from draftmux.testing import Report, Setting

    Subtest = Callable[[str], AbstractContextManager[Any]]


class Conformance:
    """Runs the conformance kit and reports every check as a subtest of its own."""

    def __init__(self, subtest: Subtest) -> None:
        self._subtest = subtest

    def drafter(self, plugin: Any, **options: Any) -> Report:
        """Every check of `draftmux.testing.check_drafter`, with the same arguments."""
        return self._check("drafter", plugin, options)

    def router(self, plugin: Any, **options: Any) -> Report:
        """Every check of `draftmux.testing.check_router`, with the same arguments."""
        return self._check("router", plugin, options)

    def verifier(self, plugin: Any, **options: Any) -> Report:
        """Every check of `draftmux.testing.check_verifier`, with the same arguments."""
        return self._check("verifier", plugin, options)

    def backend(self, plugin: Any, **options: Any) -> Report:
        """Every check of `draftmux.testing.check_backend`, with the same arguments."""
        return self._check("backend", plugin, options)

    def constraint(self, plugin: Any, **options: Any) -> Report:
        """Every check of `draftmux.testing.check_constraint`, with the same arguments."""
        return self._check("constraint", plugin, options)

    def _check(self, kind: str, plugin: Any, options: dict[str, Any]) -> Report:
        from draftmux.testing.conformance import kit, report

        only: Iterable[str] | None = options.pop("only", None)
        skip: Iterable[str] = options.pop("skip", ())
        setting: Setting | None = options.pop("setting", None)
        subject = kit.plan(kind, plugin, options, setting)
        found = []
        for finding in report.findings(kit.CHECKS[kind].select(only, skip), subject):
            found.append(finding)
            with self._subtest(f"{kind} '{subject.name}': {finding.check}"):
                _tell(finding)
        told = report.Report(kind, subject.name, tuple(found))
        told.warn()
        return told


def _tell(finding: Any) -> None:
    """Fail or skip as the check did; the message is all there is to see, so pytest shows no traceback."""
    __tracebackhide__ = True
    if finding.outcome == "failed":
        pytest.fail(str(finding), pytrace=False)
    if finding.outcome == "skipped":
        pytest.skip(finding.message)


@pytest.fixture
def conformance(request: pytest.FixtureRequest) -> Conformance:
    """`conformance.drafter(plugin, **options)`, and the same for `router`, `verifier`, `backend` and `constraint`."""
    return Conformance(_subtests(request))


def _subtests(request: pytest.FixtureRequest) -> Subtest:
    """Before pytest 9 there are no subtests: then the first check that fails ends the test."""
    try:
        subtests = request.getfixturevalue("subtests")
    except pytest.FixtureLookupError:
        return lambda message: nullcontext()
    return lambda message: subtests.test(msg=message)
