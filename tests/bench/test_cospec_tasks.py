"""Rows of public data sets become problems that their tasks can check."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from draftmux.tasks.exact import ExactNumber, ExactString
from draftmux.tasks.unit_tests import UnitTests

SCRIPT = Path(__file__).parents[2] / "docs/bench/cospec/tasks.py"
ADD = "def add(a, b):\n    return a + b"
ROWS: list[tuple[str, dict[str, Any], Any, str, str]] = [
    ("gsm8k", {"question": "q", "answer": "2*3=6\n#### 1,006"}, ExactNumber(), "so\n#### 1006", "#### 1007"),
    (
        "math",
        {"problem": "p", "solution": "x \\boxed{1} y \\boxed{\\frac{1}{2}}."},
        ExactString(),
        "#### \\frac{1}{2}",
        "1",
    ),
    ("math500", {"problem": "p", "answer": "(1, 2)"}, ExactString(), "z\n#### (1, 2)", "#### (1, 3)"),
    (
        "mbpp",
        {"text": "add", "test_list": ["assert add(1, 2) == 3"], "test_setup_code": None},
        UnitTests(),
        f"```python\n{ADD}\n```",
        "```python\ndef add(a, b):\n    return a\n```",
    ),
    (
        "humaneval",
        {"prompt": "def add(a, b):\n", "test": "def check(f):\n    assert f(1, 2) == 3", "entry_point": "add"},
        UnitTests(),
        f"```python\n{ADD}\n```",
        "no code",
    ),
]


@pytest.mark.parametrize(("name", "row", "task", "right", "wrong"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_is_a_problem(name: str, row: dict[str, Any], task: Any, right: str, wrong: str) -> None:
    found = runpy.run_path(str(SCRIPT))["FORMS"][name](row)
    assert json.dumps(found) and set(found) == {"prompt", "reference"}
    assert task.solved(right, found["reference"]) and not task.solved(wrong, found["reference"])
