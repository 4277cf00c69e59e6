"""A trained probe on disk: `probe.safetensors` with the weights `w (d,)`, and `probe.json` with what they are for.

Must not know how probes are trained or used. Without torch until weights are read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import asdict, field, frozen

from draftmux.drafters.ngram import LONGEST
from draftmux.errors import ModelError
from draftmux.models.parts import part_file
from draftmux.types import Tap

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

CONFIG, WEIGHTS, NAME = "probe.json", "probe.safetensors", "weight"
FORMAT = 1
SHIFTS = (0, 1, 2)


@frozen
class About:
    """What a probe is for. `shift`: its label is that of the token so many places behind the one its state has read.
    `labels`: `repeats` of `label_size` tokens, or `copies` that the text follows for `follows` tokens.
    `min_match` is kappa, the n-gram that must have occurred before; `threshold` is tau, on `sigmoid(w · h)`."""

    tap: str
    shift: int
    threshold: float
    min_match: int
    hidden_size: int
    target: str
    target_fingerprint: str
    label_size: int
    penalty: float
    labels: str = "repeats"
    follows: int = 5
    metrics: Mapping[str, Any] = field(factory=dict)
    origin: Mapping[str, Any] = field(factory=dict)
    format: int = FORMAT


def save(folder: Path, weight: Tensor, about: About) -> None:
    """Both files; `weight (d,)` in float32."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({NAME: weight.detach().float().contiguous().cpu()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(asdict(about), indent=2) + "\n", "utf-8")


def read_about(source: str, revision: str | None = None, download: bool = True) -> About | None:
    """What a probe is for; None while it is not at hand. ModelError when it is none that is understood."""
    path = part_file(source, CONFIG, revision, download)
    if path is None:
        if not download:
            return None
        raise ModelError(f"probe '{source}' has no {CONFIG}; a probe is a folder with {CONFIG} and {WEIGHTS}")
    try:
        values = dict(json.loads(path.read_text("utf-8")))
        if values.get("format") != FORMAT:
            raise ValueError(f"format {values.get('format')} is not {FORMAT}, the one that is known here")
        about = About(**values)
        _check(about)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"probe '{source}': {path.name} is not one of `draftmux train probe`: {error}") from error
    return about


def _check(about: About) -> None:
    Tap.parse(about.tap)
    if not isinstance(about.target_fingerprint, str) or not about.target_fingerprint:
        raise ValueError(f"target_fingerprint must say which weights it is for: {about.target_fingerprint!r}")
    if about.shift not in SHIFTS:
        raise ValueError(f"shift must be one of {SHIFTS}: {about.shift}")
    if not 0 <= about.threshold <= 1:
        raise ValueError(f"threshold must be between 0 and 1: {about.threshold}")
    if type(about.min_match) is not int or not 1 <= about.min_match <= LONGEST:
        raise ValueError(f"min_match must be a whole number from 1 to {LONGEST}: {about.min_match}")
    if type(about.hidden_size) is not int or about.hidden_size < 1:
        raise ValueError(f"hidden_size must be a positive number: {about.hidden_size}")


def read_weight(source: str, about: About, revision: str | None = None) -> Tensor:
    """`w (d,)`; ModelError when the file is missing or holds something else."""
    from safetensors.torch import load_file

    path = part_file(source, WEIGHTS, revision)
    if path is None:
        raise ModelError(f"probe '{source}' has no {WEIGHTS}")
    try:
        tensors = load_file(path)
    except Exception as error:  # foreign data
        raise ModelError(f"probe '{source}': {path.name} cannot be read: {error}") from error
    weight = tensors.get(NAME)
    if weight is None or tuple(weight.shape) != (about.hidden_size,) or not bool(weight.isfinite().all()):
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        raise ModelError(
            f"probe '{source}': {path.name} must hold '{NAME}' with {about.hidden_size} finite numbers, not {shapes}"
        )
    return weight.float()
