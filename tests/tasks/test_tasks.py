"""Whether an answer is right: numbers as they are written, texts, and code in a process with limits."""

from __future__ import annotations

import time
from typing import Any

import pytest

from draftmux.plugins import registry
from draftmux.protocols import Task
from draftmux.tasks.exact import ExactNumber, ExactString
from draftmux.tasks.unit_tests import UnitTests


def test_every_name_loads_a_task() -> None:
    found = [entry for entry in registry() if entry.kind == "task" and entry.package == "draftmux"]
    assert len(found) == 3 and all(isinstance(entry.load()(), Task) for entry in found)


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("so 3 + 4 = 7", "#### 7", True),
        ("7.", "7", True),
        ("It is 1,234 in all", "1234", True),
        ("1,234.50", "1234.5", True),
        ("a half: 1/2", "0.5", True),
        (r"\boxed{12} and then 13 more words", "12", True),
        (r"first \boxed{3}, then \boxed{4}", "4", True),
        ("#### 8\nbut 9 is nice", "8", False),  # what stands behind the mark ends with 9
        ("the answer is -3", "3", False),
        ("the answer is 17", "7", False),
        ("0.70", "0.7", True),
        ("no number", "3", False),
        ("", "3", False),
        ("1/0", "0", False),
        ("3 dogs", "none", False),
    ],
)
def test_numbers(answer: str, reference: str, right: bool) -> None:
    assert ExactNumber().solved(answer, reference) is right


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("steps\n#### abc", "abc", True),
        ("abc  def \n\n", "abc def", True),
        ("ABC", "abc", False),
        ("xabc", "abc", False),
        ("", "", False),
        ("ﬁne", "fine", True),
    ],
)
def test_texts(answer: str, reference: str, right: bool) -> None:
    assert ExactString().solved(answer, reference) is right
    assert ExactString(ignore_case=True).solved("ABC", "abc")


@pytest.mark.parametrize(
    ("task", "answer", "formed"),
    [
        (ExactNumber(), "so 7", True),
        (ExactNumber(), "no number", False),
        (ExactString(), "abc\n", True),
        (ExactString(), "steps\n#### \n", False),
        (UnitTests(), "```python\nx = 1\n```", True),
        (UnitTests(), "x = '\\d'", True),
        (UnitTests(), "I cannot say", False),
        (UnitTests(), "", False),
        (UnitTests(), "\x00\ud800", False),
        (UnitTests(), "(" * 10_000, False),
        (UnitTests(), "-" * 100_000 + "1", False),
    ],
)
def test_the_asked_form(task: Any, answer: str, formed: bool) -> None:
    assert task.formed(answer) is formed


TESTS = "assert add(2, 3) == 5\nassert add(-1, 1) == 0"
RIGHT = "def add(a, b):\n    return a + b\n"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (RIGHT, True),
        (f"Here it is:\n```python\n{RIGHT}```\nas asked", True),
        (f"```\nnonsense(\n```\nno:\n```py\n{RIGHT}```", True),
        ("def add(a, b):\n    return a - b", False),
        ("def add(a, b:\n", False),
        ("", False),
        ("import sys; sys.exit(0)", False),
        ("import os; os._exit(0)", False),
        ("print('all tests passed'); raise SystemExit", False),
        ("\x00\ud800", False),
    ],
)
def test_code(answer: str, right: bool) -> None:
    assert UnitTests().solved(answer, TESTS) is right


@pytest.mark.parametrize(
    "answer",
    ["while True: pass", "x = 'a' * (1 << 34)", "import time; time.sleep(60)", "open('b', 'w').write('a' * (1 << 24))"],
)
def test_code_is_kept_within_its_limits(answer: str) -> None:
    started = time.perf_counter()
    assert not UnitTests(timeout=0.5).solved(f"{answer}\n{RIGHT}", TESTS)
    assert time.perf_counter() - started < 5


def test_code_does_not_see_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    assert UnitTests().solved(f"import os\nassert 'SECRET' not in os.environ\n{RIGHT}", TESTS)
