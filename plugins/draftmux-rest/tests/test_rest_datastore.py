"""A datastore that was damaged, tampered with or built for another target is refused, and nothing of it runs."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmux.errors import PluginError
from draftmux.protocols import Resources
from draftmux.testing.targets import hash_law, scripted
from draftmux.testing.texts import byte_tokenizer

INSTALL = "install it: pip install -e plugins/draftmux-rest"
build = pytest.importorskip("draftmux_rest.build", reason=INSTALL)
datastore = pytest.importorskip("draftmux_rest.datastore", reason=INSTALL)
drafter = pytest.importorskip("draftmux_rest.drafter", reason=INSTALL)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datastore")
    (folder / "a.txt").write_text("the cat and the hat then the end")
    (folder / "b.txt").write_text("你好 naïve café")
    corpus = build.Corpus(byte_tokenizer())
    for name in ("a.txt", "b.txt"):
        corpus.add(folder / name)
    with build.appearing(folder / "store") as new:
        build.write(new, corpus, "bytes", "Apache-2.0")
    return folder / "store"


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(built, tmp_path / "store"))


def bind(folder: Path, **changed: Any) -> Any:
    tokenizer = byte_tokenizer()
    size = len(tokenizer)
    resources = {"tokenizer": tokenizer, "backend": scripted(hash_law(0, size), size), **changed}
    return drafter.Rest(datastore=str(folder)).bind(Resources(**resources))


def edit(folder: Path, **changed: Any) -> None:
    path = folder / "datastore.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def replace_array(folder: Path, name: str, array: Any) -> None:
    """With a manifest that agrees, as somebody with bad intentions would do it."""
    np.save(folder / name, array, allow_pickle=True)
    files = json.loads((folder / "datastore.json").read_text())["files"]
    edit(folder, files=files | {name: datastore.file_hash(folder / name)})


def test_what_is_written_is_what_is_opened(built: Path) -> None:
    opened, tokenizer = datastore.load(built), byte_tokenizer()
    first, second = (tokenizer(text)["input_ids"] for text in ("the cat and the hat then the end", "你好 naïve café"))
    assert opened.tokens.tolist() == [*first, -1, *second, -1]
    assert opened.suffixes.tolist() == build.suffix_array(opened.tokens).tolist()
    manifest = opened.manifest
    assert (manifest.documents, manifest.tokens, manifest.license) == (2, len(first) + len(second) + 2, "Apache-2.0")
    assert [Path(source["path"]).name for source in manifest.sources] == ["a.txt", "b.txt"]
    assert manifest.sources[0]["bytes"] == 32
    assert manifest.vocab_size == len(tokenizer)


def test_arrays_are_mapped_and_not_read(built: Path) -> None:
    opened = datastore.load(built)
    assert isinstance(opened.tokens.base, np.memmap) and not opened.tokens.flags.writeable
    assert isinstance(opened.suffixes.base, np.memmap) and not opened.suffixes.flags.writeable


def test_a_datastore_binds_to_its_own_tokenizer(built: Path) -> None:
    assert bind(built).store.manifest.tokenizer == "bytes"
    assert bind(built, backend=None).store.manifest.tokenizer == "bytes"


class Other:
    """The same tokens, two of them swapped."""

    def get_vocab(self) -> dict[str, int]:
        vocabulary = dict(byte_tokenizer().get_vocab())
        first, second = list(vocabulary)[:2]
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        return vocabulary

    def __len__(self) -> int:
        return len(byte_tokenizer())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenizer": Other()}, "was built with the tokenizer of 'bytes'.*vocabulary is not the target's.*--target"),
        ({"tokenizer": None}, "needs the target's tokenizer"),
        ({"backend": scripted(hash_law(0, 8), 8)}, r"holds token id \d+, and the target has logits for ids 0 to 7"),
    ],
)
def test_another_target_is_refused(built: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        bind(built, **changed)


Damage = Callable[[Path], object]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no folder": (shutil.rmtree, "is not a datastore: there is no datastore.json.*draftmux-rest build"),
    "no manifest": (lambda s: (s / "datastore.json").unlink(), "is not a datastore"),
    "no tokens": (lambda s: (s / "tokens.npy").unlink(), "tokens.npy cannot be read: No such file"),
    "no suffixes": (lambda s: (s / "suffixes.npy").unlink(), "suffixes.npy cannot be read: No such file"),
    "manifest cut": (lambda s: (s / "datastore.json").write_text('{"format": "dr'), "datastore.json is not JSON"),
    "manifest binary": (lambda s: (s / "datastore.json").write_bytes(b"\xff\xfe\x00"), "datastore.json is not JSON"),
    "manifest deep": (lambda s: (s / "datastore.json").write_text("[" * 10**5), "datastore.json is not JSON"),
    "manifest a list": (lambda s: (s / "datastore.json").write_text("[1]"), 'does not say "format": "draftmux-rest"'),
    "another format": (lambda s: edit(s, format="zip"), 'does not say "format": "draftmux-rest"'),
    "newer version": (lambda s: edit(s, version=2), "format version 2 and this draftmux-rest reads version 1"),
    "version a text": (lambda s: edit(s, version="1"), "format version '1' and"),
    "another key": (lambda s: edit(s, code="x"), "lacks a key or has a wrong one"),
    "wrong type": (lambda s: edit(s, tokens="many"), "lacks a key or has a wrong one"),
    "negative count": (lambda s: edit(s, vocab_size=-1), "lacks a key or has a wrong one"),
    "no hash": (lambda s: edit(s, files={}), "tokens.npy is truncated or was changed"),
    "tokens cut": (lambda s: (s / "tokens.npy").open("r+b").truncate(150), "tokens.npy is truncated or was changed"),
    "suffixes cut": (lambda s: (s / "suffixes.npy").open("r+b").truncate(0), "suffixes.npy is truncated or was"),
    "a bit of the tokens": (lambda s: flip(s / "tokens.npy"), "tokens.npy is truncated or was changed"),
    "a bit of the suffixes": (lambda s: flip(s / "suffixes.npy"), "suffixes.npy is truncated or was changed"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_damaged_datastore_is_refused(store: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    damage(store)
    with pytest.raises(PluginError, match=message) as raised:
        bind(store)
    assert str(store) in str(raised.value) and "build" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("tokens.npy", lambda a: a[:-1], "must hold .* int32"),
        ("tokens.npy", lambda a: a.astype(np.int64), "must hold .* int32"),
        ("tokens.npy", lambda a: a.reshape(1, -1), "must hold .* int32"),
        (
            "tokens.npy",
            lambda a: np.where(a == a[0], 10**6, a).astype(np.int32),
            "numbers from -1 to 1000000; they must",
        ),
        ("tokens.npy", lambda a: np.where(a == a[0], -2, a).astype(np.int32), "numbers from -2"),
        ("tokens.npy", lambda a: np.append(a[:-1], a[0]), "does not end with a document border"),
        ("suffixes.npy", lambda a: np.where(a == 0, -1, a).astype(np.int32), "numbers from -1"),
        ("suffixes.npy", lambda a: a + 1, "numbers from 1"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused(store: Path, name: str, array: Any, message: str) -> None:
    replace_array(store, name, array(np.load(store / name)))
    with pytest.raises(PluginError, match=f"{name} .*{message}"):
        bind(store)


def with_header(content: bytes, header: bytes) -> bytes:
    """An array's file with another header, in the same format."""
    end = content.index(b"\n") + 1
    return content[:8] + len(header).to_bytes(2, "little") + header + content[end:]


def rehash(folder: Path, name: str) -> None:
    files = json.loads((folder / "datastore.json").read_text())["files"]
    edit(folder, files=files | {name: datastore.file_hash(folder / name)})


HEADERS = [
    b"{'descr': '<i4', 'fortran_order': False, 'shape': (3,\n",
    b"{'descr': '<i4' '\n",
    b"(" * 9000 + b"\n",
    b"{1: 2, 'descr': 3}\n",
    b"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999999,)}\n",
    b"{'descr': '<i4', 'fortran_order': False, 'shape': (-3,)}\n",
    b"{'descr': ('<i4', [[[]]]), 'fortran_order': False, 'shape': (3,)}\n",
    b"{'descr': '<i4', 'fortran_order': False, 'shape': (3L,)}\n",
    b"\xff\x00\n",
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
@pytest.mark.parametrize("name", ["tokens.npy", "suffixes.npy"])
@pytest.mark.filterwarnings("ignore:Reading:UserWarning")
def test_a_header_that_cannot_be_parsed_is_refused(store: Path, name: str, header: bytes) -> None:
    path = store / name
    path.write_bytes(with_header(path.read_bytes(), header))
    rehash(store, name)
    with pytest.raises(PluginError, match=f"{name} (is not a NumPy array file|must hold)"):
        datastore.load(store)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.filterwarnings("ignore:Reading:UserWarning")
def test_any_corruption_that_the_hash_does_not_tell_is_refused_or_harmless(store: Path, data: st.DataObject) -> None:
    path = store / "suffixes.npy"
    whole = path.read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 140))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    rehash(store, "suffixes.npy")
    try:
        with suppress(PluginError):
            datastore.load(store)
    finally:
        path.write_bytes(whole)


RAN: list[str] = []


class Bomb:
    def __reduce__(self) -> Any:
        return RAN.append, ("unpickled",)


@pytest.mark.parametrize("name", ["tokens.npy", "suffixes.npy"])
def test_nothing_is_unpickled(store: Path, name: str) -> None:
    replace_array(store, name, np.array([Bomb()], dtype=object))
    with pytest.raises(PluginError, match=name):
        bind(store)
    (store / name).write_bytes(pickle.dumps(Bomb()))
    edit(
        store,
        files=json.loads((store / "datastore.json").read_text())["files"] | {name: datastore.file_hash(store / name)},
    )
    with pytest.raises(PluginError, match=name):
        bind(store)
    assert RAN == []


def test_a_shuffled_suffix_array_costs_hits_and_nothing_else(store: Path, make_context: Any) -> None:
    suffixes = np.load(store / "suffixes.npy")
    replace_array(store, "suffixes.npy", np.random.default_rng(0).permutation(suffixes))
    bound = bind(store)
    tokens = [token for token in bound.store.tokens.tolist() if token >= 0]
    for end in range(2, len(tokens)):
        bound.propose_one(make_context(tokens[:end]), None, drafter.Budget())
