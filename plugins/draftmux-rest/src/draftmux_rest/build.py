"""From documents to a datastore folder: tokenise, sort the suffixes, write. Knows nothing of drafting.

A folder appears under its name complete or not at all: it is written beside it and moved into place.
"""

from __future__ import annotations

import stat
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

from draftmux.errors import PluginError, RequestError
from draftmux_rest import datastore
from draftmux_rest.datastore import BORDER, MANIFEST, SUFFIXES, TOKENS, Manifest
from draftmux_rest.texts import Document, Fields, Skipped, describe, read_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

BATCH = 64  # documents that are tokenised at once


@define
class Corpus:
    """Token ids of all documents so far, and where they came from. `tokenizer` is the target's."""

    tokenizer: Any
    fields: Fields = field(factory=Fields)
    skipped: Skipped = field(factory=Skipped)
    sources: list[dict[str, Any]] = field(factory=list)
    documents: int = 0
    length: int = 0
    _parts: list[NDArray[np.int32]] = field(factory=list)

    def add(self, path: Path) -> None:
        """Take in a file, or note why not; RequestError when the corpus becomes too big."""
        source = describe(path, self.skipped)
        if source is None:
            return
        before = self.documents
        documents = read_documents(path, self.fields, self.skipped)
        while batch := list(islice(documents, BATCH)):
            for ids in self._encode(batch, path):
                self._append(ids)
        if self.documents > before:
            self.sources.append({**source, "documents": self.documents - before})

    def tokens(self) -> NDArray[np.int32]:
        """All ids, with a border after every document; RequestError when there is none."""
        if not self._parts:
            raise RequestError(
                f"no text is left to build a datastore from: {self.skipped.count} files or lines were skipped"
                + "".join(f"\n  {reason}" for reason in self.skipped.first)
                + "\nName UTF-8 text files, or JSON Lines files and their --field"
            )
        return np.concatenate(self._parts)

    def _append(self, ids: list[int]) -> None:
        if not ids:
            return
        self.length += len(ids) + 1
        if self.length > datastore.MAX_TOKENS:
            raise RequestError(
                f"more than {datastore.MAX_TOKENS} tokens do not fit into one datastore; name fewer files"
            )
        self._parts.append(np.array([*ids, BORDER], dtype=np.int32))
        self.documents += 1

    def _encode(self, batch: list[Document], path: Path) -> Iterator[list[int]]:
        texts = [document for document in batch if isinstance(document, str)]
        if texts:
            yield from self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        for document in batch:
            if not isinstance(document, str):
                yield self._encode_chat(document, path)

    def _encode_chat(self, messages: list[dict[str, Any]], path: Path) -> list[int]:
        try:
            return list(self.tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"])
        except Exception as error:  # chat templates refuse chats in ways of their own
            self.skipped.add(path, f"a chat that the target's template refuses: {str(error)[:100]}")
            return []


def suffix_array(tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """Positions of `tokens (n,)`, n > 0, in order of the text that begins there."""
    from pydivsufsort import divsufsort  # type: ignore[import-untyped]

    rows: NDArray[np.int32] = divsufsort((tokens - BORDER).astype(np.uint32)).astype(np.int32)
    return rows


def write(folder: Path, corpus: Corpus, target: str, license: str) -> Manifest:
    """Sort the corpus and write it as a datastore into an empty folder; OSError when the disk refuses."""
    tokens = corpus.tokens()
    for name, array in ((TOKENS, tokens), (SUFFIXES, suffix_array(tokens))):
        np.save(folder / name, array, allow_pickle=False)
    manifest = Manifest(
        tokenizer=target,
        vocabulary=datastore.vocabulary_hash(corpus.tokenizer),
        vocab_size=max(corpus.tokenizer.get_vocab().values()) + 1,
        tokens=len(tokens),
        documents=corpus.documents,
        license=license,
        skipped=corpus.skipped.count,
        sources=corpus.sources,
        files={name: datastore.file_hash(folder / name) for name in (TOKENS, SUFFIXES)},
    )
    datastore.save(folder, manifest)
    return manifest


@contextmanager
def appearing(out: Path, *, force: bool = False) -> Iterator[Path]:
    """An empty folder that becomes `out` when the block ends well, and disappears when it does not.

    RequestError when `out` exists, unless it is a datastore and `force` is set; OSError when the disk refuses.
    """
    _check_free(out, force=force)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as work:
        new, old = Path(work, "new"), Path(work, "old")
        new.mkdir()
        yield new
        _check_free(out, force=force)  # it may have come into being meanwhile
        if not out.exists():
            new.rename(out)
            return
        try:
            out.rename(old)
            new.rename(out)
        except BaseException:  # Ctrl-C must not cost the old datastore either
            if not out.exists():
                old.rename(out)
            raise


def _check_free(out: Path, *, force: bool) -> None:
    """RequestError unless `out` is free, or `force` is set and it is an empty folder or a datastore and nothing else.

    What is replaced is deleted, so names are not enough: others may call their files as we do.
    """
    if not out.exists():
        return
    if not force:
        raise RequestError(f"{out} exists; choose another --out, or replace the datastore in it with --force")
    if not out.is_dir():
        raise RequestError(f"{out} is not a folder; choose another --out")
    inside = sorted(out.iterdir())
    ours = {MANIFEST, TOKENS, SUFFIXES}
    strange = [path.name for path in inside if path.name not in ours or not stat.S_ISREG(path.lstat().st_mode)]
    if strange:
        raise RequestError(
            f"{out} holds more than a datastore ({', '.join(strange[:3])}), and --force would delete it; "
            "choose another --out"
        )
    if not inside:
        return
    try:
        datastore.read_manifest(out)
    except PluginError as error:
        names = ", ".join(path.name for path in inside)
        raise RequestError(
            f"{out} is not a datastore that can be read, and --force would delete what is in it ({names}); "
            f"choose another --out, or remove these files yourself: {error}"
        ) from error
