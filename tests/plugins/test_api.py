"""A package that was written for another plugin API is not loaded, and the user is told which side to upgrade."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import draftmux
from draftmux import hookspecs
from draftmux.hookspecs import OLDEST_PLUGIN_API, PLUGIN_API
from draftmux.registry import Registry

HOOK = "from draftmux.hookspecs import hookimpl\n\n@hookimpl\ndef register_drafters(register):\n    "
REGISTER = HOOK + "register('numbered', 'draftmux.drafters.ngram.pld:PromptLookup')\n"
ASKS = """\
import sys, types

class Module(types.ModuleType):
    @property
    def draftmux_api(self):
        raise RuntimeError('ask somebody else')

sys.modules[__name__].__class__ = Module
"""
Found = Callable[..., Registry]


@pytest.fixture
def numbered(package: Callable[..., Path], found: Found) -> Callable[[str], Registry]:
    """What is found when a package starts with this code."""
    return lambda code: found(package("numbered", code + REGISTER))


def test_the_range_is_sound() -> None:
    assert 1 <= OLDEST_PLUGIN_API <= PLUGIN_API


@pytest.mark.parametrize("code", ["", "draftmux_api = 1\n", "draftmux_api: int = 1\n"])
def test_a_package_for_this_api_is_loaded(code: str, numbered: Callable[[str], Registry]) -> None:
    registry = numbered(code)
    assert registry.broken == []
    assert [point.api for point in registry.loaded] == [1]
    assert registry.names("drafter") == ["numbered"]


@pytest.mark.parametrize(
    ("api", "reason"),
    [
        (2, "it is written for plugin API 2, and draftmux {ours} has plugin API 1; upgrade draftmux"),
        (10**9, "it is written for plugin API 1000000000, and draftmux {ours} has plugin API 1; upgrade draftmux"),
        (0, "it is written for plugin API 0, and draftmux {ours} supports 1 to 1; upgrade the package"),
        (-1, "it is written for plugin API -1, and draftmux {ours} supports 1 to 1; upgrade the package"),
    ],
)
def test_a_package_for_another_api_is_not(api: int, reason: str, numbered: Callable[[str], Registry]) -> None:
    registry = numbered(f"draftmux_api = {api}\n")
    assert registry.entries == {}
    assert registry.loaded == []
    [broken] = registry.broken
    assert (broken.package, broken.version, broken.entry_point) == ("numbered", "1.2", "numbered-point")
    assert broken.reason.endswith(reason.format(ours=draftmux.__version__))


@pytest.mark.parametrize("value", ["'1'", "True", "None", "1.0", "[1]", "type('Int', (int,), {})(1)", "10**5000"])
def test_what_is_no_number_is_refused(value: str, numbered: Callable[[str], Registry]) -> None:
    registry = numbered(f"draftmux_api = {value}\n")
    assert registry.entries == {} and registry.loaded == []
    [broken] = registry.broken
    assert "must be a whole number such as 1, not " in broken.reason or "4300 digits" in broken.reason


def test_a_number_that_cannot_be_asked_for_is_a_fault(numbered: Callable[[str], Registry]) -> None:
    [broken] = numbered(ASKS).broken
    assert broken.reason == "RuntimeError: ask somebody else"


def test_the_number_is_the_module_s_also_behind_an_object(package: Callable[..., Path], found: Found) -> None:
    code = "draftmux_api = 2\nclass Plugins:\n    draftmux_api = 1\n"
    folder = package("behind", code, points="[draftmux]\nbehind = behind:Plugins\n")
    [broken] = found(folder).broken
    assert "plugin API 2" in broken.reason


def test_a_later_draftmux_says_what_it_still_takes(
    package: Callable[..., Path], found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hookspecs, "PLUGIN_API", 4)
    monkeypatch.setattr(hookspecs, "OLDEST_PLUGIN_API", 3)
    modules = {f"api_{n}": f"draftmux_api = {n}\n{REGISTER.replace('numbered', f'n{n}')}" for n in (2, 3, 4, 5)}
    points = "[draftmux]\n" + "".join(f"p{n} = api_{n}\n" for n in (2, 3, 4, 5)) + "silent = silent\n"
    registry = found(package("ages", "", modules=modules | {"silent": REGISTER}, points=points))
    assert registry.names("drafter") == ["n3", "n4"]
    assert sorted((point.entry_point, point.api) for point in registry.loaded) == [("p3", 3), ("p4", 4)]
    reasons = {broken.entry_point: broken.reason for broken in registry.broken}
    assert set(reasons) == {"p2", "p5", "silent"}
    assert reasons["p2"].endswith("supports 3 to 4; upgrade the package")
    assert reasons["p5"].endswith("has plugin API 4; upgrade draftmux")
    assert "plugin API 1," in reasons["silent"]  # said nothing, so it was written for the first
