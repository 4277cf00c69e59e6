from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.bench.suites import from_file, humaneval
from draftmux.errors import RequestError


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "prompts.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_humaneval_is_the_installed_one() -> None:
    suite = humaneval()
    assert suite.name == "humaneval"
    assert len(suite.rows) == 164
    assert suite.rows[0].id == "HumanEval/0"
    assert suite.rows[0].turns[0].lstrip().startswith("from typing import List")
    assert len({row.id for row in suite.rows}) == 164


def test_layouts_of_rows(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"question_id": 81, "category": "writing", "turns": ["one", "two"], "reference": []}\n'
        "\n"
        '{"prompt": "three"}\n'
        '{"id": "x", "prompt": "four"}',
    )
    suite = from_file(path)
    assert suite.name == "prompts.jsonl"
    assert [(row.id, row.category, row.turns) for row in suite.rows] == [
        ("81", "writing", ("one", "two")),
        ("3", "", ("three",)),
        ("x", "", ("four",)),
    ]
    assert [row.id for row in suite.first(2).rows] == ["81", "3"]
    assert suite.first(None) == suite


def test_byte_order_mark_and_separators_inside_texts(tmp_path: Path) -> None:
    suite = from_file(write(tmp_path, '\ufeff{"prompt": "a\u2028b\x85c"}\r\n{"prompt": "d"}\r\n'))
    assert [row.turns for row in suite.rows] == [("a\u2028b\x85c",), ("d",)]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=4))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    import json

    path = tmp_path_factory.mktemp("suite") / "prompts.jsonl"
    path.write_text("".join(json.dumps({"turns": [text]}, ensure_ascii=False) + "\n" for text in texts), "utf-8")
    assert [row.turns[0] for row in from_file(path).rows] == texts


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object, not list"),
        ('{"question": "x"}', "lacks 'turns'"),
        ('{"turns": "x"}', "'turns' must be a list"),
        ('{"turns": []}', "'turns' must be a list of one"),
        ('{"turns": ["x", 3]}', "'turns' must hold texts that are not empty, not 3"),
        ('{"prompt": ""}', "'prompt' must hold texts that are not empty"),
        ('{"prompt": null}', "'prompt' must hold texts that are not empty, not null"),
        ("[" * 100_000, "not JSON"),
        (b'{"prompt": "\xff"}', "not UTF-8: byte 0xff"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, line: str | bytes, problem: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    path = write(tmp_path, b'{"prompt": "fine"}\n\n' + raw + b"\n")
    with pytest.raises(RequestError) as caught:
        from_file(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_prompts(tmp_path: Path, content: str) -> None:
    with pytest.raises(RequestError, match=r"no prompts; give one JSON object a line"):
        from_file(write(tmp_path, content))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"missing\.jsonl': No such file"):
        from_file(tmp_path / "missing.jsonl")
    with pytest.raises(RequestError, match="Is a directory"):
        from_file(tmp_path)
