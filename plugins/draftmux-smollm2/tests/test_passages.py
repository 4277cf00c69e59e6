"""Prompts about passages: whole sentences of the texts given, within the length, the same for a seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from draftmux_smollm2.prompt_passages import WORDS, passages
from draftmux_smollm2.prompts import main

TEXTS = [" ".join(f"Text {name} says sentence {at}." for at in range(400)) for name in "ab"]


def test_a_passage_is_a_run_of_whole_sentences_of_one_text() -> None:
    draw, rng = passages(TEXTS), random.Random(0)
    for _ in range(200):
        prompt = draw(rng)
        [text] = [text for text in TEXTS if text[:7] in prompt]
        first, last = prompt.index("Text "), prompt.rindex("Text ")
        passage = prompt[first : prompt.index(".", last) + 1]
        assert passage in text
        assert len(passage.split()) < WORDS[1] + 10
        assert prompt.replace(passage, "").strip()  # there is a request, too


def test_the_same_seed_draws_the_same() -> None:
    assert [passages(TEXTS)(random.Random(3)) for _ in range(3)] == [
        passages(TEXTS)(random.Random(3)) for _ in range(3)
    ]


def test_texts_are_read_from_files_and_chats(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXTS[0], "utf-8")
    chat = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXTS[1]}]}
    (tmp_path / "two.jsonl").write_text(json.dumps(chat) + "\n", "utf-8")
    out = tmp_path / "prompts.jsonl"
    flags = [part for name in ("one.txt", "two.jsonl") for part in ("--texts", str(tmp_path / name))]
    found = CliRunner().invoke(main, ["--count", "30", "--out", str(out), *flags])
    assert found.exit_code == 0, found.output
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(rows) == 30 and {row["family"] for row in rows} == {"passages"}
    whole = " ".join(row["messages"][0]["content"] for row in rows)
    assert "Text a says" in whole and "Text b says" in whole


NO_TEXTS = ["", "{}", '{"messages": []}', '{"messages": [{"role": "user", "content": " "}]}', "no json", b"\xff"]


@pytest.mark.parametrize("content", NO_TEXTS)
def test_a_file_without_texts_is_named(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "two.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = CliRunner().invoke(main, ["--count", "1", "--out", str(tmp_path / "out"), "--texts", str(path)])
    assert found.exit_code == 1 and f"--texts {path}" in " ".join(found.output.split())
    assert not (tmp_path / "out").exists()


def test_texts_and_families_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text(TEXTS[0], "utf-8")
    flags = ["--family", "code", "--texts", str(tmp_path / "one.txt"), "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(main, flags)
    assert found.exit_code == 2 and "two kinds of prompts" in found.output


def test_a_short_text_is_taken_whole() -> None:
    text = "It rained. Nobody came. The band played on."
    draw, rng = passages([text]), random.Random(1)
    assert all(text in draw(rng) for _ in range(20))


def test_words_without_full_stops_are_cut_too() -> None:
    text = " ".join(f"word{at}" for at in range(5000))
    draw, rng = passages([text]), random.Random(1)
    counts = [len([word for word in draw(rng).split() if word.startswith("word")]) for _ in range(50)]
    assert WORDS[0] <= min(counts) and max(counts) <= 2 * WORDS[1]


def test_texts_with_odd_characters_are_one_text_each(tmp_path: Path) -> None:
    path = tmp_path / "two.jsonl"
    chats = [{"messages": [{"role": "user", "content": text}]} for text in ("One.\u2028Two.\x85", "Half \ud83d.")]
    path.write_text("\n".join(json.dumps(chat) for chat in chats), "utf-8")
    out = tmp_path / "out"
    found = CliRunner().invoke(main, ["--count", "20", "--out", str(out), "--texts", str(path)])
    assert found.exit_code == 0, found.output
    whole = out.read_text("utf-8")
    assert "One.\u2028Two." in whole or "One. Two." in whole
    assert "Half ?." in whole
