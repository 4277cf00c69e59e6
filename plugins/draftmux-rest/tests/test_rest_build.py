"""Building from files of every kind: what is read, what is skipped and said; a failed build leaves nothing."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from draftmux.testing.texts import byte_tokenizer

INSTALL = "install it: pip install -e plugins/draftmux-rest"
build = pytest.importorskip("draftmux_rest.build", reason=INSTALL)
cli = pytest.importorskip("draftmux_rest.cli", reason=INSTALL)
datastore = pytest.importorskip("draftmux_rest.datastore", reason=INSTALL)

CHAT = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer."""
    folder = tmp_path_factory.mktemp("target")
    byte_tokenizer().save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": CHAT}))
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(target: Path, *arguments: str) -> Result:
    command = ["build", *arguments, "--target", str(target)]
    return CliRunner(catch_exceptions=False).invoke(cli.main, command)


def documents(folder: str) -> list[str]:
    tokens = datastore.load(Path(folder)).tokens
    parts = np.split(tokens, np.flatnonzero(tokens == -1) + 1)[:-1]
    return [byte_tokenizer().decode(part[:-1].tolist()) for part in parts]


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.name.startswith((".", "tokens", "suffixes")))


def test_folders_files_and_globs(here: Path, target: Path) -> None:
    (here / "src" / "deep").mkdir(parents=True)
    (here / "src" / "a.py").write_text("the cat")
    (here / "src" / "deep" / "b.py").write_bytes(b"\xef\xbb\xbfna\xc3\xafve\r\n")
    (here / "src" / "c.txt").write_text("not asked for")
    (here / "d.txt").write_text("named itself")
    result = run(target, "src", "d.txt", "src/a.py", "--glob", "*.py", "--out", "new/store", "--license", "MIT")
    assert result.exit_code == 0, result.output
    assert documents("new/store") == ["named itself", "the cat", "naïve\r\n"]
    assert "in 3 documents from 3 files; 0 skipped" in result.stdout
    manifest = datastore.read_manifest(Path("new/store"))
    assert (manifest.license, manifest.tokenizer) == ("MIT", str(target))
    assert [source["path"] for source in manifest.sources] == ["d.txt", "src/a.py", "src/deep/b.py"]


def test_what_cannot_be_used_is_named_and_counted(here: Path, target: Path) -> None:
    (here / "src").mkdir()
    (here / "src" / "good.txt").write_text("good")
    (here / "src" / "empty.txt").write_text(" \n")
    (here / "src" / "binary").write_bytes(b"a\0b")
    (here / "src" / "latin.txt").write_bytes(b"caf\xe9")
    os.mkfifo(here / "src" / "pipe")
    (here / "src" / "broken").symlink_to("nowhere")
    (here / "src" / "loop").symlink_to(here / "src")
    (here / "src" / os.fsdecode(b"bad\xffname")).write_text("read all the same")
    result = run(target, "src", "--out", "store")
    assert result.exit_code == 0, result.output
    assert sorted(documents("store")) == ["good", "read all the same"]
    for line in ("binary: binary", "empty.txt: empty", "latin.txt: binary", "pipe: not a regular", "broken: not a"):
        assert f"skipped src/{line}" in result.stderr
    assert "; 5 skipped" in result.stdout and datastore.read_manifest(Path("store")).skipped == 5


def test_a_file_that_cannot_be_read_is_skipped(here: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "good.txt").write_text("good")
    (here / "bad.txt").write_text("bad")
    real = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "bad.txt":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    result = run(target, "good.txt", "bad.txt", "--out", "store")
    assert "skipped bad.txt: cannot be read: Permission denied" in result.stderr
    assert documents("store") == ["good"]


def test_json_lines(here: Path, target: Path) -> None:
    chat = [{"role": "user", "content": "cat"}, {"role": "assistant", "content": "hat"}]
    rows: list[Any] = [
        {"text": "one", "other": 1},
        {"code": "two", "text": " "},
        {"messages": chat},
        {"none": "of them"},
        ["a list"],
        {"text": "half \ud800"},
        {"messages": [{"no": "role"}, "x"]},
    ]
    content = "\n".join(json.dumps(row) for row in rows) + "\n\n{broken\n"
    (here / "data.jsonl").write_text(content)
    fields = ("--field", "text", "--field", "code", "--chat-field", "messages")
    result = run(target, "data.jsonl", *fields, "--out", "store")
    assert result.exit_code == 0, result.output
    assert sorted(documents("store")) == sorted(["one", "two", "<|user|>cat<|assistant|>hat"])
    for line in ("4: no text in text, code, messages; its keys: none", "5: not a JSON object", "6: no", "9: not JSON"):
        assert f"skipped data.jsonl:{line}" in result.stderr
    assert "from 1 files; 5 skipped" in result.stdout


def test_a_chat_that_the_template_refuses_is_skipped(here: Path, target: Path, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.chat_template is None
    (here / "data.jsonl").write_text('{"text": "good"}\n{"chat": [{"role": "user", "content": "x"}]}\n')
    corpus = build.Corpus(tokenizer, build.Fields(chats=("chat",)))
    corpus.add(Path("data.jsonl"))
    assert (corpus.documents, corpus.skipped.count) == (1, 1)
    assert "template refuses" in corpus.skipped.first[0]


def test_more_documents_than_a_batch_keep_their_order(here: Path, target: Path) -> None:
    texts = [f"text {number}" for number in range(2 * build.BATCH + 3)]
    (here / "data.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert run(target, "data.jsonl", "--out", "store").exit_code == 0
    assert documents("store") == texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "there is no file or folder 'missing'"),
        (["empty"], "no text is left to build a datastore from: 1 files or lines were skipped\n  empty/x: empty"),
    ],
)
def test_nothing_to_build_from_is_refused(here: Path, target: Path, arguments: list[str], message: str) -> None:
    (here / "empty").mkdir()
    (here / "empty" / "x").touch()
    result = run(target, *arguments, "--out", "store")
    assert result.exit_code == 1 and message in result.stderr
    assert not (here / "store").exists() and left_over(here) == []


def test_an_existing_folder_is_kept(here: Path, target: Path) -> None:
    (here / "a.txt").write_text("first")
    assert run(target, "a.txt", "--out", "store").exit_code == 0
    (here / "a.txt").write_text("second")
    result = run(target, "a.txt", "--out", "store")
    assert result.exit_code == 1 and "exists; choose another --out, or replace" in result.stderr
    assert documents("store") == ["first"]
    assert run(target, ".", "--out", "store", "--force", "--glob", "*.txt").exit_code == 0
    assert documents("store") == ["second"]
    (here / "store" / "thesis.txt").touch()
    result = run(target, "a.txt", "--out", "store", "--force")
    assert result.exit_code == 1 and "holds more than a datastore (thesis.txt), and --force would" in result.stderr
    result = run(target, "a.txt", "--out", "a.txt", "--force")
    assert result.exit_code == 1 and "is not a folder" in result.stderr
    assert (here / "a.txt").read_text() == "second" and left_over(here / "store") == ["suffixes.npy", "tokens.npy"]


def own_array(store: Path) -> None:
    store.mkdir()
    (store / "tokens.npy").write_text("years of work")


def array_folder(store: Path) -> None:
    (store / "tokens.npy").mkdir(parents=True)
    (store / "tokens.npy" / "thesis.txt").write_text("years of work")


def inside_a_datastore(store: Path) -> None:
    (store / "suffixes.npy").unlink()
    (store / "suffixes.npy").mkdir()
    (store / "suffixes.npy" / "thesis.txt").write_text("years of work")


def link(store: Path) -> None:
    (store / "tokens.npy").unlink()
    (store / "tokens.npy").symlink_to("../a.txt")


def other_manifest(store: Path) -> None:
    (store / "datastore.json").write_text('{"name": "my own data store"}')


def lone_manifest(store: Path) -> None:
    store.mkdir()
    other_manifest(store)


FOLDERS: dict[str, tuple[Any, bool, str]] = {
    "a file of our name": (own_array, False, "is not a datastore that can be read.*would delete.*tokens.npy"),
    "a folder of our name": (array_folder, False, r"holds more than a datastore \(tokens.npy\)"),
    "a folder in a datastore": (inside_a_datastore, True, r"holds more than a datastore \(suffixes.npy\)"),
    "a link": (link, True, r"holds more than a datastore \(tokens.npy\)"),
    "arrays with another manifest": (other_manifest, True, "is not a datastore that can be read.*suffixes.npy"),
    "another manifest": (lone_manifest, False, 'is not a datastore.*"format": "draftmux-rest"'),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_force_replaces_nothing_but_a_datastore(here: Path, target: Path, name: str) -> None:
    make, on_datastore, message = FOLDERS[name]
    (here / "a.txt").write_text("text")
    if on_datastore:
        assert run(target, "a.txt", "--out", "store").exit_code == 0
    make(here / "store")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    result = run(target, "a.txt", "--out", "store", "--force")
    assert result.exit_code == 1
    assert re.search(f"Error: {re.escape(str(here / 'store'))} .*{message}", result.stderr), result.stderr
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_what_comes_into_the_folder_during_a_build_is_kept(here: Path, target: Path) -> None:
    (here / "a.txt").write_text("text")
    assert run(target, "a.txt", "--out", "store").exit_code == 0
    with (
        pytest.raises(build.RequestError, match=r"holds more than a datastore \(thesis.txt\)"),
        build.appearing(here / "store", force=True),
    ):
        (here / "store" / "thesis.txt").touch()
    assert documents("store") == ["text"] and (here / "store" / "thesis.txt").exists()


def test_an_empty_folder_can_be_replaced(here: Path, target: Path) -> None:
    (here / "a.txt").write_text("text")
    (here / "store").mkdir()
    assert run(target, "a.txt", "--out", "store").exit_code == 1
    assert run(target, "a.txt", "--out", "store", "--force").exit_code == 0
    assert documents("store") == ["text"]


def test_an_old_datastore_is_no_source_of_the_new_one(here: Path, target: Path) -> None:
    (here / "a.txt").write_text("text")
    for _ in range(2):
        assert run(target, ".", "--out", "store", "--force").exit_code == 0
    assert documents("store") == ["text"]


@pytest.mark.parametrize("failing", ["save", "file_hash", "rename"])
@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_nothing(
    here: Path, target: Path, monkeypatch: pytest.MonkeyPatch, failing: str, fault: BaseException
) -> None:
    (here / "a.txt").write_text("first")
    assert run(target, "a.txt", "--out", "old").exit_code == 0

    def fail(*_: Any, **__: Any) -> None:
        raise fault

    places: dict[str, Any] = {"save": datastore, "file_hash": datastore, "rename": Path}
    real = getattr(places[failing], failing)
    for out in ("new", "old"):
        with monkeypatch.context() as patch:
            if failing == "rename" and out == "old":
                patch.setattr(Path, "rename", lambda a, b: fail() if a.name == "new" else real(a, b))
            else:
                patch.setattr(places[failing], failing, fail)
            result = run(target, "a.txt", "--out", out, "--force")
        assert result.exit_code == 1
        assert isinstance(fault, KeyboardInterrupt) or "No space left on device" in result.stderr
    assert not (here / "new").exists()
    assert documents("old") == ["first"] and left_over(here) == ["suffixes.npy", "tokens.npy"]


def test_a_corpus_that_is_too_big_is_refused(here: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "a.txt").write_text("some words")
    monkeypatch.setattr(datastore, "MAX_TOKENS", 3)
    result = run(target, "a.txt", "--out", "store")
    assert result.exit_code == 1 and "more than 3 tokens do not fit" in result.stderr


def test_an_unknown_target_is_said(here: Path) -> None:
    (here / "a.txt").write_text("text")
    result = run(Path("no such model"), "a.txt", "--out", "store")
    assert result.exit_code == 1 and "no such model" in result.stderr
