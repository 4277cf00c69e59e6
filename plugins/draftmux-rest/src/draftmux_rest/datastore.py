"""A datastore on disk: token ids, their suffix array, and a manifest. Opened read-only and memory-mapped.

Knows the file formats; nothing of texts, searching or drafting. Everything in a datastore is data: it is checked
against the manifest's hashes and ranges, and nothing in it is unpickled or executed.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import asdict, field, frozen
from attrs.validators import and_, ge, instance_of

from draftmux.errors import PluginError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = "draftmux-rest"
VERSION = 1
MANIFEST, TOKENS, SUFFIXES = "datastore.json", "tokens.npy", "suffixes.npy"
BORDER = -1  # follows every document; no query holds it, and it sorts before every token
MAX_TOKENS = (1 << 31) - (1 << 16)  # positions are int32, and a search reads a little past them


_TEXT, _COUNT = instance_of(str), and_(instance_of(int), ge(0))


@frozen
class Manifest:
    """What a datastore says of itself.

    `vocabulary` is the tokenizer's `vocabulary_hash`, `tokens` the length of both arrays, borders included; `files`
    maps each array's file to its SHA-256. `sources` and `skipped` (a count) say what the datastore was made of.
    """

    tokenizer: str = field(validator=_TEXT)
    vocabulary: str = field(validator=_TEXT)
    vocab_size: int = field(validator=_COUNT)
    tokens: int = field(validator=_COUNT)
    documents: int = field(validator=_COUNT)
    license: str = field(validator=_TEXT)
    skipped: int = field(validator=_COUNT)
    sources: list[dict[str, Any]] = field(validator=instance_of(list))
    files: dict[str, str] = field(validator=instance_of(dict))


@frozen(eq=False)
class Datastore:
    """`tokens (n,)`, int32 with `BORDER` after every document, and `suffixes (n,)`, positions in order of suffix."""

    manifest: Manifest
    tokens: NDArray[np.int32]
    suffixes: NDArray[np.int32]


def vocabulary_hash(tokenizer: Any) -> str:
    """SHA-256 of which token has which id: two tokenizers with the same one mean the same by every id."""
    pairs = sorted((index, token) for token, index in tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which comes last: without it a folder is no datastore."""
    content = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


def load(folder: Path) -> Datastore:
    """Open a datastore; PluginError names the file that is missing, damaged, or of another version.

    Reads every byte once for the hashes, which also brings the files into memory before the first search.
    """
    manifest = read_manifest(folder)
    tokens, suffixes = (_array(folder / name, manifest) for name in (TOKENS, SUFFIXES))
    _check_range(folder / TOKENS, tokens, BORDER, manifest.vocab_size)
    _check_range(folder / SUFFIXES, suffixes, 0, manifest.tokens)
    if tokens[-1] != BORDER:
        raise _fault(folder / TOKENS, "does not end with a document border")
    return Datastore(manifest, tokens, suffixes)


def read_manifest(folder: Path) -> Manifest:
    """The manifest alone; PluginError when it is not one of this version."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise PluginError(
            f"rest: {folder} is not a datastore: there is no {MANIFEST} in it (relative paths start at the working "
            f"folder); make one with draftmux-rest build … --out {folder}"
        ) from error
    except OSError as error:
        raise PluginError(f"rest: {path} cannot be read: {error.strerror}; `datastore` must name a folder") from error
    except (ValueError, RecursionError) as error:
        raise _fault(path, f"is not JSON ({error})") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise _fault(path, f'does not say "format": "{FORMAT}"')
    if (version := content.pop("version", None)) != VERSION:
        raise PluginError(
            f"rest: {path} has format version {version!r:.20} and this draftmux-rest reads version {VERSION}; "
            "update draftmux-rest, or build the datastore again"
        )
    try:
        return Manifest(**content)
    except (TypeError, ValueError) as error:
        raise _fault(path, f"lacks a key or has a wrong one ({error.args[0]!s:.200})") from error


def _array(path: Path, manifest: Manifest) -> NDArray[np.int32]:
    """One array, mapped from its file, if the file is the one that the manifest was written for."""
    try:
        if file_hash(path) != manifest.files.get(path.name):
            raise _fault(path, f"is truncated or was changed: its SHA-256 is not the one in {MANIFEST}")
        mapped = _mapped(path)
    except OSError as error:
        raise PluginError(
            f"rest: {path} cannot be read: {error.strerror or error}; build the datastore again"
        ) from error
    if not isinstance(mapped, np.ndarray) or mapped.dtype != np.int32 or mapped.shape != (manifest.tokens,):
        raise _fault(path, f"must hold {manifest.tokens} int32 numbers, as {MANIFEST} says")
    if not len(mapped):
        raise _fault(path, "is empty")
    return mapped.view(np.ndarray)  # a plain view is indexed several times faster than a memmap


def _mapped(path: Path) -> Any:
    """A NumPy file, memory-mapped; PluginError when its header cannot be parsed, OSError when it cannot be read."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # the header is parsed as Python source, which fails in many ways
        raise _fault(path, f"is not a NumPy array file ({type(error).__name__}: {error!s:.200})") from error


def _check_range(path: Path, array: NDArray[np.int32], low: int, end: int) -> None:
    if array.min() < low or array.max() >= end:
        raise _fault(path, f"holds numbers from {array.min()} to {array.max()}; they must be {low} to {end - 1}")


def _fault(path: Path, what: str) -> PluginError:
    return PluginError(f"rest: {path} {what}; the datastore is damaged, build it again with draftmux-rest build")
