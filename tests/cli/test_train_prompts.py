"""`draftmux train prompts`: what the target takes for the text of a user, after the chat template's own opening."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoTokenizer

from draftmux.errors import RequestError
from draftmux.models.source import ModelSpec
from draftmux.training.magpie import Turn, write_prompts
from draftmux.training.prompts import read_prompts
from draftmux.training.recipe import Magpie

if TYPE_CHECKING:
    from draftmux.generation import Generation

LOOP = "{{% for m in messages %}}{}{{{{ m['content'] }}}}{}{{% endfor %}}"  # before and behind a text
FLAGS = ("--dtype", "float64", "--count", "7", "--max-new-tokens", "9", "--batch", "4")


def written(command: Any, model: Path, path: Path, *flags: str) -> list[str]:
    command("train", "prompts", "--target", str(model), "--out", str(path), *FLAGS, *flags)
    return [prompt.messages[0]["content"] for prompt in read_prompts(str(path))]


def test_prompts_are_the_targets_own_for_a_seed(model: Path, tmp_path: Path, command: Any) -> None:
    first = written(command, model, tmp_path / "a.jsonl")
    assert len(first) == len(set(first)) == 7
    assert set(written(command, model, tmp_path / "c.jsonl", "--batch", "3")) == set(first)  # whatever runs beside it
    assert not set(written(command, model, tmp_path / "d.jsonl", "--seed", "1")) & set(first)


def test_it_goes_on_where_it_was_stopped(model: Path, tmp_path: Path, command: Any) -> None:
    path = tmp_path / "a.jsonl"
    whole = written(command, model, path)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:9], "utf-8")  # the fourth was cut while it was written
    assert sorted(written(command, model, path)) == sorted(whole)
    assert path.read_text("utf-8").splitlines(keepends=True)[:3] == lines[:3]
    assert sorted(path.read_text("utf-8").splitlines(keepends=True)) == sorted(lines)


@pytest.mark.parametrize("content", [b'{"messages": []}\n', b"mine\n", b'{"id": "abc-1"}\n', b"\xff\n", None])
def test_a_file_of_something_else_is_left_alone(
    model: Path, tmp_path: Path, command: Any, content: bytes | None
) -> None:
    path = tmp_path / "a.jsonl"
    if content is None:
        written(command, model, path, "--seed", "5")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    found = command("train", "prompts", "--target", str(model), "--out", str(path), *FLAGS, code=1)
    assert "is not of this command" in found.output and "give another --out" in found.output
    assert path.read_bytes() == before


def test_a_prompt_goes_on_from_where_the_user_speaks(model: Path) -> None:
    backend = bound(model)
    how = Magpie(count=2, temperature=1.0, max_new_tokens=9)
    opening = tuple(backend.tokenizer("<|system|>Be brief.<|user|>")["input_ids"])
    alone = {_continued(backend, opening, how.generation(number)) for number in range(2)}
    assert {text for _, text in write_prompts(backend, ["Be brief."], how)} == alone


def bound(model: Path) -> Any:
    from draftmux.backends.static.backend import StaticBackend

    return StaticBackend(self_check=False).bind(ModelSpec(source=str(model), dtype="float64"), ())


def _continued(backend: Any, opening: tuple[int, ...], generation: Generation) -> str:
    from draftmux.testing.harness import assemble, serve
    from draftmux.testing.reference import Ask

    [outcome] = serve(assemble(backend), [Ask(opening, generation, "one")]).values()
    text: str = backend.tokenizer.decode(outcome.finished.tokens)
    return text.strip()


def speaking(model: Path, template: str | None) -> Any:
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("template", "before", "stop", "stop_ids"),
    [
        (LOOP.format("<|user|>", "<end>"), "<|user|>", (), (256,)),
        (LOOP.format("<|user|>", "") + "<|assistant|>", "<|user|>", (), (258,)),
        (LOOP.format("[INST] ", " [/INST]"), "[INST]", ("[/INST]",), ()),
        (LOOP.format("USER:\n", "\n"), "USER:\n", (), ()),
    ],
)
def test_a_turn_ends_with_what_the_template_puts_behind_it(
    model: Path, template: str, before: str, stop: tuple[str, ...], stop_ids: tuple[int, ...]
) -> None:
    tokenizer = speaking(model, template)
    turn = Turn.of(tokenizer, None)
    assert turn == Turn(tuple(tokenizer(before)["input_ids"]), stop, stop_ids)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], return_dict=True)["input_ids"]
    assert tuple(ids[: len(turn.before)]) == turn.before


def test_no_prompt_goes_on_behind_its_turn(model: Path) -> None:
    backend, how = bound(model), Magpie(count=20, temperature=1.0, max_new_tokens=20)
    backend.tokenizer.chat_template = LOOP.format("<|user|>", "<end>")
    free = dict(write_prompts(backend, [None], how))
    letter = max(string.ascii_letters, key="".join(free.values()).count)
    backend.tokenizer.chat_template = LOOP.format("<|user|>", letter)
    found = dict(write_prompts(backend, [None], how))
    assert any(letter in text for text in free.values()) and len(found) > 10
    for number, text in found.items():
        assert letter not in text and free[number].startswith(text)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "has no chat template"),
        (
            "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}",
            "no place for",
        ),
        ("{{ messages[0]['content'] }}", "no place for"),
        ("{{ messages[1]['content'] }}<|user|>{{ messages[0]['content'] }}", "no place for"),
        ("{{ raise_exception('System role not supported') }}", "refuses .*System role not supported"),
    ],
)
def test_a_template_without_a_place_for_them_is_named(model: Path, template: str | None, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        Turn.of(speaking(model, template), "Be brief.")


def test_a_refused_option_is_named(model: Path, tmp_path: Path, command: Any) -> None:
    flags = ("--target", str(model), "--out", str(tmp_path / "a.jsonl"), "--temperature", "0")
    assert "'temperature' must be >= 0.1: 0" in command("train", "prompts", *flags, code=2).output
    assert not (tmp_path / "a.jsonl").exists()


def test_lines_are_chats(model: Path, tmp_path: Path, command: Any) -> None:
    written(command, model, tmp_path / "a.jsonl", "--system", "Be brief.")
    for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines():
        assert [message["role"] for message in json.loads(line)["messages"]] == ["user"]  # the system one steers only
