"""Packages that register rubbish, fail in ways that cannot be shown, or write to the terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.errors import PluginError
from draftmux.registry import BrokenPlugin, Registry, one_line, package_name, told

Run = subprocess.CompletedProcess[str]
Found = Callable[..., Registry]

HOOK = "from draftmux.hookspecs import hookimpl\n\n@hookimpl\ndef register_drafters(register):\n    "
TARGET = "draftmux.drafters.ngram.pld:PromptLookup"

HELPS = {
    "newlines": ("one\n\ttwo\r\nthree\x0b\u2028four", "one two three four"),
    "colours": ("\x1b[31mred\x1b[0m \x1b]0;a title\x07and \x1b]8;;link\x1b\\more", "red and more"),
    "half-escape": ("\x1b[2;\x1b", "[2;"),
    "surrogates": ("a \ud83d\udc7e b", "a b"),
    "bidi": ("user \u202egpj.exe", "user gpj.exe"),
    "long": ("x" * 5000, "x" * 199 + "…"),
    "foreign": ("匹配 naïve Ω", "匹配 naïve Ω"),
}

# What a package does, and the last line that its user must be told.
HOSTILE = {
    "name-path": (HOOK + f"register('org/name', '{TARGET}')", "not 'org/name'"),
    "name-escape": (HOOK + f"register('\\x1b[31mpld', '{TARGET}')", "'\\x1b[31mpld'"),
    "name-newline": (HOOK + f"register('pld\\n', '{TARGET}')", "'pld\\n'"),
    "name-surrogate": (HOOK + f"register('pld\\udc80', '{TARGET}')", "'pld\\udc80'"),
    "name-space": (HOOK + f"register(' pld', '{TARGET}')", "' pld'"),
    "name-long": (HOOK + f"register('x' * 101, '{TARGET}')", "xxx'"),
    "name-of-own-class": (HOOK + f"register(type('Text', (str,), {{}})('pld'), '{TARGET}')", "three texts"),
    "target-relative": (HOOK + "register('x', '..drafter:Mine')", "'..drafter:Mine'"),
    "target-nested": (HOOK + "register('x', 'a:B.C')", "'a:B.C'"),
    "half-then-bad": (HOOK + f"register('fine', '{TARGET}'); register('', '{TARGET}')", "not ''"),
    "generator": (HOOK + f"yield register('late', '{TARGET}')", "must call register and return nothing"),
    "returns": (HOOK + "return [('name', 'a:B')]", "must call register and return nothing, not [('name', 'a:B')]"),
    "dir-raises": ("def __dir__(): raise LookupError('no members')\n" + HOOK + "pass", "LookupError: no members"),
    "str-raises": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError('no')\n    __repr__ = __str__\nraise Odd",
        "<exception str() failed>",
    ),
    "notes-raise": (
        "class Odd(Exception):\n    @property\n    def __notes__(self): raise SystemExit('no')\nraise Odd",
        "an exception that raises another when it is shown",
    ),
    "repr-raises": (
        "class Odd:\n    def __repr__(self): raise ValueError('no name')\n" + HOOK + "register(Odd(), 'a:B')",
        "ValueError: no name",
    ),
    "message-surrogate": ("raise OSError('file \\udcff')", "OSError: file \ufffd"),
    "message-escape": ("raise OSError('\\x1b[2J\\x1b[31mgone\\x07')", "OSError: gone\ufffd"),
    "message-empty-lines": ("raise OSError('well\\n\\n  \\n')", "OSError: well"),
    "several": ("raise ExceptionGroup('both', [OSError('left'), OSError('right')])", "OSError: right"),
    "recursion": ("def again(): again()\nagain()", "RecursionError"),
    "draftmux-error": ("from draftmux.errors import PipelineError\nraise PipelineError(['a: b'])", "a: b"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_registers_nothing_and_its_reason_is_told(name: str, package: Callable[..., Path], found: Found) -> None:
    code, reason = HOSTILE[name]
    registry = found(package(name, code + "\n"))
    assert registry.entries == {} and registry.loaded == []
    [broken] = registry.broken
    assert broken.package == name
    assert broken.traceback.startswith(("Traceback (most recent call last):\n", "  + Exception Group Traceback"))
    assert reason in broken.reason
    assert_harmless(broken.traceback)
    with pytest.raises(PluginError) as error:
        registry.find("drafter", "fine")
    assert f"{name} 1.2 (entry point {name}-point)" in str(error.value)


@pytest.mark.parametrize("name", HELPS)
def test_help_is_one_harmless_line(name: str, package: Callable[..., Path], found: Found) -> None:
    help, shown = HELPS[name]
    [entry] = found(package(name, HOOK + f"register('a', '{TARGET}', {help!a})\n"))
    assert entry.help == shown


def test_all_of_them_at_once_leave_the_listing_whole(
    package: Callable[..., Path], draftmux: Callable[..., Run]
) -> None:
    folders = [package(name, code + "\n") for name, (code, _) in HOSTILE.items()]
    folders += [package(name, HOOK + f"register('h-{name}', '{TARGET}', {HELPS[name][0]!a})\n") for name in HELPS]
    loud = package("loud", "print('hello, I am loud')\n" + HOOK + f"print('me too'); register('loud', '{TARGET}')\n")
    for encoding in ("utf-8", "ascii"):
        env = {"PYTHONIOENCODING": f"{encoding}:strict"}
        done = draftmux("plugins", path=[*folders, loud], env=env)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert done.stdout.count("NOT LOADED: ") == len(HOSTILE)
        assert "hello" not in done.stdout and "hello, I am loud\nme too\n" in done.stderr
        assert ("匹配" if encoding == "utf-8" else "\\u5339\\u914d") in done.stdout
        done = draftmux("plugins", "--json", path=[*folders, loud], env=env)
        told = json.loads(done.stdout)
        assert {broken["package"] for broken in told["broken"]} == set(HOSTILE)
        helps = {entry["name"].removeprefix("h-"): entry["help"] for entry in told["plugins"]}
        assert {name: helps[name] for name in HELPS} == {name: shown for name, (_, shown) in HELPS.items()}


def test_a_class_that_prints_when_it_is_imported_spoils_no_output(
    package: Callable[..., Path], draftmux: Callable[..., Run], pipeline: Callable[[str], str]
) -> None:
    late = {"late_print": "print('a banner')\nfrom draftmux.drafters.ngram.pld import PromptLookup as Mine\n"}
    folder = package("banner", HOOK + "register('banner', 'late_print:Mine')\n", modules=late)
    done = draftmux("check", "--json", pipeline("  a: {use: banner}"), path=[folder])
    assert json.loads(done.stdout)["ok"] is True
    assert done.stderr == "a banner\n"


def test_names_that_clash_within_a_package_are_refused_when_used(package: Callable[..., Path], found: Found) -> None:
    code = HOOK + f"register('mine', '{TARGET}'); register('mine', 'a:B'); register('other', '{TARGET}')\n"
    registry = found(package("within", code))
    assert registry.broken == []
    assert registry.find("drafter", "other").target == TARGET
    with pytest.raises(PluginError) as error:
        registry.find("drafter", "mine")
    owner = "within 1.2 (within-point)"
    assert str(error.value) == f"drafter 'mine' is published by {owner} and {owner}; report it to that package"


def test_what_is_registered_after_the_hook_does_not_count(package: Callable[..., Path], found: Found) -> None:
    code = "kept = []\n" + HOOK + f"kept.append(register); register('in-time', '{TARGET}')\n"
    registry = found(package("keeps", code))
    import keeps  # type: ignore[import-not-found]

    keeps.kept[0]("too-late", TARGET)
    assert registry.names("drafter") == ["in-time"]


METADATA = {
    "gone": None,
    "no-name": b"Metadata-Version: 2.1\n",
    "empty": b"",
    "no-text": b"\xff\xfe\x00",
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_cannot_be_read_costs_the_name_only(
    name: str, package: Callable[..., Path], found: Found
) -> None:
    folder = package(f"meta-{name}", HOOK + f"register('nameless', '{TARGET}')\n")
    metadata = next(folder.glob("*.dist-info/METADATA"))
    text = METADATA[name]
    metadata.unlink() if text is None else metadata.write_bytes(text)
    registry = found(folder)
    assert registry.broken == []
    assert registry.find("drafter", "nameless").package == "unknown package"


def test_metadata_cannot_write_to_the_terminal(package: Callable[..., Path], found: Found) -> None:
    folder = package("painted", HOOK + f"register('painted', '{TARGET}')\n")
    metadata = "Metadata-Version: 2.1\nName: pain\x1b[31mted\nVersion: 1\x072\n"
    next(folder.glob("*.dist-info/METADATA")).write_text(metadata)
    entry = found(folder).find("drafter", "painted")
    assert (entry.package, entry.version) == ("painted", "1 2")


def test_a_slow_import_is_timed_and_named(package: Callable[..., Path], draftmux: Callable[..., Run]) -> None:
    slow = package("slow", "import time\ntime.sleep(0.6)\n" + HOOK + f"register('slow', '{TARGET}')\n")
    breaks = package("slow-break", "import time\ntime.sleep(0.6)\nraise OSError\n")
    quick = package("quick", HOOK + f"register('quick', '{TARGET}')\n")
    path = [slow, breaks, quick]
    told = json.loads(draftmux("plugins", "--json", path=path).stdout)
    seconds = {point["package"]: point["seconds"] for point in told["loaded"] + told["broken"]}
    assert seconds["slow"] >= 0.6 and seconds["slow-break"] >= 0.6
    assert 0 < seconds["quick"] < 0.6
    lines = [line for line in draftmux("plugins", path=path).stdout.splitlines() if line.startswith("SLOW")]
    assert [line.split(" took ")[0] for line in lines] == [
        "SLOW: slow 1.2 (entry point slow-point)",
        "SLOW: slow-break 1.2 (entry point slow-break-point)",
    ]
    assert lines[0].endswith("slow should import heavy libraries such as torch inside functions")


def assert_harmless(text: str) -> None:
    """Any terminal can show it, and nothing in it steers the terminal."""
    text.encode()
    assert all(char.isprintable() or char in "\n\t" for char in text), ascii(text)


ANY = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b[]0;mJ\x07\\\n\r\u2028\ud800 "))


@given(ANY, st.integers(1, 40))
def test_one_line_is_one_short_harmless_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert_harmless(line)
    assert len(line) <= limit and "\n" not in line and line == line.strip()
    assert one_line(line, limit) == line


@given(ANY)
def test_any_message_can_be_told(message: str) -> None:
    try:
        raise OSError(message)
    except OSError as error:
        text = told(error)
    assert_harmless(text)
    assert text.startswith("Traceback (most recent call last):\n") and "OSError" in text


@given(st.text())
def test_a_reason_can_always_be_given(text: str) -> None:
    reason = BrokenPlugin("a", "1", "p", text).reason
    assert reason.strip() and len(reason.splitlines()) == 1


@given(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True))
def test_a_package_has_one_normal_form(name: str) -> None:
    from packaging.utils import canonicalize_name

    assert package_name(name) == canonicalize_name(name)
