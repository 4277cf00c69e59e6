"""The fixture `conformance`: a subtest for each check, and nothing else for whoever does not use it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

import draftmux.testing
from draftmux.testing.drafters import Empty
from draftmux.testing.pytest_plugin import Conformance, _subtests

pytest_plugins = ["pytester"]

GOOD = """
    from draftmux.testing import Setting
    from draftmux.testing.drafters import Empty
    from draftmux.testing.targets import hash_law, scripted

    def test_it_conforms(conformance):
        small = Setting(target=lambda taps: scripted(hash_law(1, 9), 9))
        report = conformance.drafter(Empty(), setting=small, only=["protocol", "budgets", "non-anticipation"])
        assert [finding.outcome for finding in report.findings] == ["passed", "passed", "skipped"]
"""
BAD = """
    from draftmux.drafting import TokenDrafter
    from draftmux.routers.fixed import Fixed
    from draftmux.testing import Setting
    from draftmux.testing.constraints import Automaton
    from draftmux.testing.targets import hash_law, scripted

    class Sloppy(TokenDrafter):
        def draft(self, tokens, budget):
            return [[-1]]

        def observe(self, state, step):
            assert False, "observed"

    def test_it_conforms(conformance):
        small = Setting(target=lambda taps: scripted(hash_law(1, 9), 9))
        conformance.router(Fixed, drafter="one", setting=small, only=["protocol", "legal-choices"])
        conformance.verifier("exact-match", only=["declarations"])
        conformance.constraint(Automaton(1), setting=small, only=["masks"])
        conformance.drafter(Sloppy(), setting=small, only=["legal-trees", "own-state", "lazy-observe"])
"""
QUIET = """
    def test_nothing():
        import sys

        heavy = {"torch", "transformers", "hypothesis", "numpy", "draftmux.testing.conformance"}
        assert not heavy & set(sys.modules)
"""


def run(pytester: pytest.Pytester, *arguments: str) -> tuple[int, str]:
    """In a process of its own, as strangers run it: the exit code, and what it shows."""
    command = [sys.executable, "-W", "error", "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_every_check_is_a_subtest_that_passes_is_skipped_or_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_good=GOOD, test_bad=BAD)
    code, shown = run(pytester, "-v", "-rA")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "SUBPASSED[drafter 'Empty': budgets]" in shown and "emits.q is False" in shown
    for check in ("legal-trees", "own-state", "lazy-observe"):
        assert f"SUBFAILED[drafter 'Sloppy': {check}]" in shown
    assert "node 0 is token -1" in shown and "AssertionError: observed" in shown and "in observe at" in shown
    assert not any(f"SUBFAILED[{kind}" in shown for kind in ("router", "verifier", "constraint"))
    assert "SUBPASSED[constraint 'Automaton': masks]" in shown
    assert "test_good.py::test_it_conforms PASSED" in shown


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("xdist"), reason="pytest-xdist is not installed")
def test_it_runs_under_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it_conforms(conformance):\n    conformance.drafter(object())")
    code, shown = run(pytester, "-n", "1", "-v")
    assert code == pytest.ExitCode.TESTS_FAILED and "SUBFAILED[drafter 'object': protocol]" in shown, shown


def test_before_there_were_subtests_the_first_failure_ends_the_test(request: pytest.FixtureRequest) -> None:
    class Before9:
        def getfixturevalue(self, name: str) -> Any:
            raise pytest.FixtureLookupError(name, request)

    kit = Conformance(_subtests(Before9()))  # type: ignore[arg-type]
    assert kit.drafter(Empty(), only=["protocol", "budgets"]).failed == []
    with pytest.raises(pytest.fail.Exception, match=r"\[protocol\]"):
        kit.drafter(object(), only=["protocol", "budgets"])


@pytest.mark.parametrize("arguments", [(), ("-p", "no:draftmux")], ids=["on", "off"])
def test_other_suites_start_without_what_it_needs(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makepyfile(QUIET)
    code, shown = run(pytester, "-p", "no:hypothesispytest", *arguments)
    assert code == 0, shown


def test_without_the_plugin_the_fixture_is_gone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it_conforms(conformance):\n    pass")
    code, shown = run(pytester, "-p", "no:draftmux")
    assert code == pytest.ExitCode.TESTS_FAILED and "fixture 'conformance' not found" in shown


def test_the_kit_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, draftmux.testing as kit\n"
        "assert not {'torch', 'transformers', 'hypothesis'} & set(sys.modules)\n"
        "assert not any(name.startswith('draftmux.testing.') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(getattr(draftmux.testing, name) for name in draftmux.testing.__all__)
    with pytest.raises(AttributeError, match="check_driver"):
        _ = draftmux.testing.check_driver
