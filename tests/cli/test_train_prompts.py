"""`draftmux train prompts`: what the target takes for the text of a user, after the chat template's own opening."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoTokenizer

from draftmux.errors import RequestError
from draftmux.models.source import ModelSpec
from draftmux.training.magpie import write_prompts
from draftmux.training.prompts import read_prompts
from draftmux.training.recipe import Magpie

if TYPE_CHECKING:
    from draftmux.generation import Generation

FLAGS = ("--dtype", "float64", "--count", "7", "--max-new-tokens", "9", "--batch", "4")


def written(command: Any, model: Path, path: Path, *flags: str) -> list[str]:
    command("train", "prompts", "--target", str(model), "--out", str(path), *FLAGS, *flags)
    return [prompt.messages[0]["content"] for prompt in read_prompts(str(path))]


def test_prompts_are_the_targets_own_for_a_seed(model: Path, tmp_path: Path, command: Any) -> None:
    first = written(command, model, tmp_path / "a.jsonl")
    assert len(first) == len(set(first)) == 7
    assert set(written(command, model, tmp_path / "c.jsonl", "--batch", "3")) == set(first)  # whatever runs beside it
    assert not set(written(command, model, tmp_path / "d.jsonl", "--seed", "1")) & set(first)


def test_a_prompt_goes_on_from_where_the_user_speaks(model: Path) -> None:
    from draftmux.backends.static.backend import StaticBackend

    backend = StaticBackend(self_check=False).bind(ModelSpec(source=str(model), dtype="float64"), ())
    how = Magpie(count=2, temperature=1.0, max_new_tokens=9)
    opening = tuple(backend.tokenizer("<|system|>Be brief.<|user|>")["input_ids"])
    alone = {_continued(backend, opening, how.generation(number)) for number in range(2)}
    assert set(write_prompts(backend, ["Be brief."], how)) == alone


def _continued(backend: Any, opening: tuple[int, ...], generation: Generation) -> str:
    from draftmux.testing.harness import assemble, serve
    from draftmux.testing.reference import Ask

    [outcome] = serve(assemble(backend), [Ask(opening, generation, "one")]).values()
    text: str = backend.tokenizer.decode(outcome.finished.tokens)
    return text.strip()


class Speaking:
    """A backend whose tokenizer has another template, or none."""

    def __init__(self, model: Path, template: str | None) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.tokenizer.chat_template = template


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "has no chat template"),
        ("{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}{% endfor %}", "leaves out"),
        ("{{ messages[0]['content'] }}", "leaves out"),
        ("{{ raise_exception('System role not supported') }}", "refuses .*System role not supported"),
    ],
)
def test_a_template_without_a_place_for_them_is_named(model: Path, template: str | None, said: str) -> None:
    backend: Any = Speaking(model, template)
    with pytest.raises(RequestError, match=said):
        list(write_prompts(backend, ["Be brief."], Magpie(count=1)))


def test_a_refused_option_is_named(model: Path, tmp_path: Path, command: Any) -> None:
    flags = ("--target", str(model), "--out", str(tmp_path / "a.jsonl"), "--temperature", "0")
    assert "'temperature' must be >= 0.1: 0" in command("train", "prompts", *flags, code=2).output
    assert not (tmp_path / "a.jsonl").exists()


def test_lines_are_chats(model: Path, tmp_path: Path, command: Any) -> None:
    written(command, model, tmp_path / "a.jsonl", "--system", "Be brief.")
    for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines():
        assert [message["role"] for message in json.loads(line)["messages"]] == ["user"]  # the system one steers only
