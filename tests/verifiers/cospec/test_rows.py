"""Labels on disk survive a run that was stopped while it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmux.errors import RequestError
from draftmux.training.prompts import Prompt
from draftmux.verifiers.cospec.mining import Mismatch
from draftmux.verifiers.cospec.network import Sample
from draftmux.verifiers.cospec.problems import Problem
from draftmux.verifiers.cospec.rows import Rows

PROBLEMS = [Problem(Prompt(({"role": "user", "content": str(number)},)), "x") for number in range(600)]


def labels(problems: Any) -> list[Mismatch]:
    sample = Sample(np.array([1, 2]), (3,), (4,), np.zeros((1, 5), dtype=np.float32))
    return [Mismatch(problem.key, sample, 0, 0.7, (True, True)) for problem in problems]


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_line_is_written_again(tmp_path: Path, cut: int) -> None:
    rows = Rows(tmp_path / "rows.jsonl", {"of": "these"})
    assert list(rows.fill(PROBLEMS[:300], labels)) == [256, 300]
    whole = rows.path.read_bytes()
    rows.path.write_bytes(whole[:-cut])
    assert list(rows.fill(PROBLEMS, labels))[-1] == 600
    assert [row.key for row in rows.read(PROBLEMS)] == [problem.key for problem in PROBLEMS]
    assert list(rows.fill(PROBLEMS, labels)) == []


def test_labels_of_another_run_are_refused(tmp_path: Path) -> None:
    list(Rows(tmp_path / "rows.jsonl", {"task": "a"}).fill(PROBLEMS[:2], labels))
    with pytest.raises(RequestError, match="train into another folder"):
        Rows(tmp_path / "rows.jsonl", {"task": "b"}).read(PROBLEMS)


def test_another_reference_is_another_problem() -> None:
    prompt = PROBLEMS[0].prompt
    assert Problem(prompt, "1").key != Problem(prompt, "2").key
