"""Prompts for probes: three families in their shares, each answerable from what it shows, the same for a seed."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from draftmux_smollm2 import prompt_copies
from draftmux_smollm2.prompt_copies import WORDS, passage
from draftmux_smollm2.prompts import COPY_DIVERSITY, main, prompts

TEXTS = [" ".join(f"Text {name} says sentence {at} here." for at in range(60)) for name in "ab"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return list(prompts(600, 3, copying=True))


def test_families_have_their_shares(rows: list[dict[str, Any]]) -> None:
    counts = Counter(row["family"] for row in rows)
    for family, (share, _) in COPY_DIVERSITY.items():
        assert abs(counts[family] / len(rows) - share) < 0.07
    assert len({row["messages"][0]["content"] for row in rows}) == len(rows)


def test_the_seed_decides(rows: list[dict[str, Any]]) -> None:
    assert list(prompts(20, 3, copying=True)) == rows[:20] != list(prompts(20, 4, copying=True))


def test_nothing_of_the_grammar_is_left_over(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        text = row["messages"][0]["content"]
        assert not re.search(r"<[\^!=]?[a-z_]+\d*[:>]", text.replace("<module>", "")), text


@pytest.mark.parametrize("given", [[], TEXTS])
def test_passages_are_whole_sentences_of_a_text(given: list[str]) -> None:
    draw, rng = passage(given), random.Random(1)
    for _ in range(60):
        text = draw(rng)
        assert 3 <= len(text.split()) <= 2 * WORDS[1]
        if given:
            assert any(text in whole for whole in TEXTS) and text.endswith(".")


def test_edits_name_what_is_there() -> None:
    rng = random.Random(5)
    for _ in range(60):
        text = prompt_copies._edited(rng, passage(TEXTS))
        words = re.findall(r'"([^"]+)"', text)
        assert sum(f" {word}" in text.replace(f'"{word}"', "") for word in words) >= 1
        renamed = prompt_copies._renamed(rng, passage(TEXTS))
        old = re.findall(r"`(\w+)`", renamed)
        assert any(f"def {name}(" in renamed for name in old)
        fixed = prompt_copies._fixed(rng, passage(TEXTS))
        wrong, right = re.search(r"calls `(\w+)`, but the function is called `(\w+)`", fixed).groups()  # type: ignore[union-attr]
        assert f"print({wrong}(" in fixed and f"def {right}(" in fixed


def test_tables_are_json_and_lists_are_lists() -> None:
    rng = random.Random(6)
    for _ in range(40):
        table = prompt_copies._fields(rng, passage([]))
        found = json.loads(table[table.index("[") : table.rindex("]") + 1])
        assert any(f'"{row["name"]}"' in table for row in found) and len(found) >= 3
        assert prompt_copies._listed(rng, passage([])).count("\n- ") >= 4


def test_the_command_writes_them(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXTS[0], "utf-8")
    out = tmp_path / "prompts.jsonl"
    run = CliRunner().invoke(
        main, ["--copying", "--count", "30", "--texts", str(tmp_path / "one.txt"), "--out", str(out)]
    )
    assert run.exit_code == 0, run.output
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(found) == 30 and any("Text a says" in row["messages"][0]["content"] for row in found)
    refused = CliRunner().invoke(main, ["--copying", "--family", "code", "--count", "3", "--out", str(out)])
    assert refused.exit_code == 2 and "--copying" in refused.output
