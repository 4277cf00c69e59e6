"""Labelled mismatches on disk, one JSON object a line; a run that was stopped goes on after the last whole chunk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from draftmux.errors import RequestError
from draftmux.verifiers.cospec.mining import Mismatch
from draftmux.verifiers.cospec.network import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from draftmux.verifiers.cospec.problems import Problem

CHUNK = 256  # problems that are labelled at once, and lost when a run is stopped


@frozen(eq=False)
class Rows:
    """A file of them. Its first line says what they depend on, the others are chunks: keys of problems, and rows."""

    path: Path
    about: dict[str, Any]
    chunk: int = CHUNK

    def fill(self, problems: Sequence[Problem], mine: Callable[[Sequence[Problem]], list[Mismatch]]) -> Iterator[int]:
        """Label what is missing; yields how many problems are through."""
        self._mend()
        done = {key for chunk in self._chunks() for key in chunk["keys"]}
        missing = [problem for problem in problems if problem.key not in done]
        through = len(problems) - len(missing)
        for at in range(0, len(missing), self.chunk):
            part = missing[at : at + self.chunk]
            chunk = {"keys": [problem.key for problem in part], "rows": [packed(row) for row in mine(part)]}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(chunk) + "\n")
            through += len(part)
            yield through

    def read(self, problems: Sequence[Problem]) -> list[Mismatch]:
        """Those of some problems."""
        wanted = {problem.key for problem in problems}
        return [row for chunk in self._chunks() for row in chunk["rows"] if row.key in wanted]

    def _mend(self) -> None:
        """Cut a last line that was not written to its end, by a run that was stopped."""
        whole, end, torn = self.path.read_bytes().rpartition(b"\n") if self.path.is_file() else (b"", b"", b"")
        if torn:
            self.path.write_bytes(whole + end)

    def _chunks(self) -> list[dict[str, Any]]:
        wanted = json.loads(json.dumps(self.about))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_file() or not self.path.stat().st_size:
            self.path.write_text(json.dumps(self.about) + "\n", "utf-8")
        try:
            first, *chunks = (json.loads(line) for line in self.path.read_text("utf-8").splitlines())
            found = [
                {"keys": list(chunk["keys"]), "rows": [unpacked(row) for row in chunk["rows"]]} for chunk in chunks
            ]
            differing = [name for name in {**wanted, **first} if first.get(name) != wanted.get(name)]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise RequestError(
                f"{self.path} cannot be read: {error!r}; remove it to label anew, or train into another folder"
            ) from error
        if differing:
            name = differing[0]
            raise RequestError(
                f"{self.path} holds labels of another run: {name} was {first.get(name)}, and is {wanted.get(name)} "
                f"now; train into another folder, or remove it"
            )
        return found


def packed(row: Mismatch) -> dict[str, Any]:
    """As plain data."""
    sample = row.sample
    return {
        "key": row.key,
        "context": sample.context.tolist(),
        "drafted": list(sample.drafted),
        "verified": list(sample.verified),
        "features": sample.features.tolist(),
        "place": row.place,
        "label": row.label,
        "right": row.right,
    }


def unpacked(row: dict[str, Any]) -> Mismatch:
    """From plain data."""
    sample = Sample(
        np.array(row["context"], dtype=np.int64),
        tuple(row["drafted"]),
        tuple(row["verified"]),
        np.array(row["features"], dtype=np.float32),
    )
    if not len(sample.features) == len(sample.drafted) == len(sample.verified) > int(row["place"]) >= 0:
        raise ValueError(f"a row of problem {row['key']} has parts of different lengths, or no such place")
    right = None if row["right"] is None else (bool(row["right"][0]), bool(row["right"][1]))
    return Mismatch(row["key"], sample, int(row["place"]), float(row["label"]), right)
