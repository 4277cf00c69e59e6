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

CHUNK = 256  # problems


@frozen(eq=False)
class Rows:
    """A file of them. Its first line says what they depend on, the others are chunks: keys of problems, and rows."""

    path: Path
    about: dict[str, Any]

    def fill(self, problems: Sequence[Problem], mine: Callable[[Sequence[Problem]], list[Mismatch]]) -> Iterator[int]:
        """Label what is missing; yields how many problems are through."""
        self._mend()
        done = {key for chunk in self._chunks() for key in chunk["keys"]}
        missing = [problem for problem in problems if problem.key not in done]
        through = len(problems) - len(missing)
        for at in range(0, len(missing), CHUNK):
            part = missing[at : at + CHUNK]
            chunk = {"keys": [problem.key for problem in part], "rows": [packed(row) for row in mine(part)]}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(chunk) + "\n")
            through += len(part)
            yield through

    def read(self, problems: Sequence[Problem]) -> list[Mismatch]:
        """Those of some problems."""
        wanted = {problem.key for problem in problems}
        return [unpacked(row) for chunk in self._chunks() for row in chunk["rows"] if row["key"] in wanted]

    def _mend(self) -> None:
        """Cut a last line that was not written to its end, by a run that was stopped."""
        whole, end, torn = self.path.read_bytes().rpartition(b"\n") if self.path.is_file() else (b"", b"", b"")
        if torn:
            self.path.write_bytes(whole + end)

    def _chunks(self) -> Iterator[dict[str, Any]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.is_file() or not self.path.stat().st_size:
            self.path.write_text(json.dumps(self.about) + "\n", "utf-8")
        first, *lines = self.path.read_text("utf-8").splitlines()
        if json.loads(first) != json.loads(json.dumps(self.about)):
            raise RequestError(
                f"{self.path} holds labels made with {first}, and {json.dumps(self.about)} is asked for; train into "
                f"another folder, or remove it"
            )
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:  # the last one, of a run that was stopped while it wrote
                return


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
    right = None if row["right"] is None else (bool(row["right"][0]), bool(row["right"][1]))
    return Mismatch(row["key"], sample, int(row["place"]), float(row["label"]), right)
