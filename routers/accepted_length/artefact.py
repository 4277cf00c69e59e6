"""A trained regressor on disk: `accepted-length.json`, a weight for each feature. Without torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import asdict, field, frozen

from draftmux.drafters.ngram import LONGEST
from draftmux.errors import ModelError
from draftmux.models.parts import part_file
from draftmux.routers.accepted_length.features import NAMES, SCORE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

FILE = "accepted-length.json"
FORMAT = 1


@frozen
class Regressor:
    """`log(1 + accepted) = bias + Σ weight * feature`, for copies of up to `max_branches` times `max_depth` tokens.
    `probe` is the mark of the probe whose score is among the features."""

    weights: dict[str, float]
    bias: float
    min_match: int
    max_branches: int
    max_depth: int
    target: str = ""
    metrics: Mapping[str, Any] = field(factory=dict)
    origin: Mapping[str, Any] = field(factory=dict)
    probe: str = ""
    format: int = FORMAT

    @property
    def scored(self) -> bool:
        """Whether a probe's score is among its features."""
        return SCORE in self.weights

    def predict(self, features: NDArray[np.float64]) -> float:
        """Tokens of a copy that will be accepted."""
        weights = np.array([self.weights[name] for name in (*NAMES, *([SCORE] if self.scored else []))])
        return float(np.expm1(min(features @ weights + self.bias, 10.0)))

    def save(self, folder: Path) -> None:
        """Write the file."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")


def read_regressor(source: str, revision: str | None = None) -> Regressor:
    """Of a folder, a package or the hub; ModelError when it is none that is understood."""
    path = part_file(source, FILE, revision)
    if path is None:
        raise ModelError(f"regressor '{source}' has no {FILE}; `draftmux train accepted-length` writes it")
    try:
        found = Regressor(**json.loads(path.read_text("utf-8")))
        if found.format != FORMAT:
            raise ValueError(f"format {found.format} is not {FORMAT}, the one that is known here")
        if set(found.weights) - {SCORE} != set(NAMES):
            raise ValueError(f"weights are for {sorted(found.weights)}, not for {sorted(NAMES)}")
        if not np.isfinite([found.bias, *found.weights.values()]).all():
            raise ValueError("a weight is no number")
        if type(found.min_match) is not int or not 1 <= found.min_match <= LONGEST:
            raise ValueError(f"min_match must be a whole number from 1 to {LONGEST}: {found.min_match}")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"regressor '{source}': {path.name} cannot be used: {error}; train it again") from error
    return found
