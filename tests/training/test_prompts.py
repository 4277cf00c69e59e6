"""Prompts for training are read in every usual form, held out by their content, and faults name their line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.bench.suites import from_file
from draftmux.errors import RequestError
from draftmux.training.prompts import Prompt, read_prompts, write_held_out

USER = {"role": "user", "content": "Hello"}


def write(folder: Path, *lines: Any) -> str:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return str(path)


@pytest.mark.parametrize(
    "line",
    [
        {"messages": [USER, {"role": "assistant", "content": "Hi"}]},
        {"conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hi"}]},
        {"turns": ["Hello", "And now?"]},
        {"prompt": "Hello"},
    ],
)
def test_every_form_gives_the_first_turn(tmp_path: Path, line: dict[str, Any]) -> None:
    assert [prompt.messages for prompt in read_prompts(write(tmp_path, line))] == [(USER,)]


def test_a_system_message_stays(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    assert read_prompts(write(tmp_path, {"messages": [system, USER]}))[0].messages == (system, USER)


def test_equal_prompts_count_once_and_a_limit_holds(tmp_path: Path) -> None:
    source = write(tmp_path, {"prompt": "a"}, {"prompt": "a"}, "", {"prompt": "b"}, {"prompt": "c"})
    assert [prompt.messages[0]["content"] for prompt in read_prompts(source)] == ["a", "b", "c"]
    assert len(read_prompts(source, limit=2)) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "prompts.jsonl:2 is no JSON"),
        ("[1]", "prompts.jsonl:2 has no user's turn"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "prompts.jsonl:2 has no user's turn"),
        ({"messages": [{"role": "user"}]}, "prompts.jsonl:2: a message must have a role and a text"),
        ({"messages": ["Hi"]}, "prompts.jsonl:2: a message must have a role and a text"),
        ("[" * 10_000, "prompts.jsonl:2 is no JSON"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_prompts(write(tmp_path, {"prompt": "a"}, line))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no prompts"):
        read_prompts(write(tmp_path, ""))


@given(st.lists(st.text(), unique=True, max_size=30), st.floats(0, 1))
def test_held_out_is_a_matter_of_content(texts: list[str], share: float) -> None:
    prompts = [Prompt(({"role": "user", "content": text},)) for text in texts]
    again = [Prompt(({"content": text, "role": "user"},)) for text in texts]
    assert [p.held_out(share) for p in prompts] == [p.held_out(share) for p in again]
    assert not any(p.held_out(0) for p in prompts)
    assert all(p.held_out(1) for p in prompts)


def test_the_share_that_is_held_out_is_about_what_was_asked() -> None:
    prompts = [Prompt(({"role": "user", "content": str(number)},)) for number in range(4000)]
    assert 150 < sum(prompt.held_out(0.05) for prompt in prompts) < 250


def test_held_out_prompts_are_what_bench_reads(tmp_path: Path) -> None:
    """Each text once, and none that was learned after another system message."""
    systems: list[tuple[dict[str, str], ...]] = [(), ({"role": "system", "content": "Be brief."},)]
    texts = ["", *(f"Hello {number}" for number in range(200))]
    prompts = [Prompt((*system, {"role": "user", "content": text})) for system in systems for text in texts]
    path = tmp_path / "new" / "held.jsonl"
    write_held_out(path, prompts, 0.3)
    held, learned = ({p.messages[-1]["content"] for p in prompts if p.held_out(0.3) == kept} for kept in (True, False))
    found = [row.turns[0] for row in from_file(path).rows]
    assert set(found) == held - learned - {""} and 5 < len(found) == len(set(found)) < 40
    assert found != sorted(found, key=texts.index)
