"""A trained arbiter on disk: PEFT's two files, `head.safetensors`, and `arbiter.json` with what they are for.

Must not know how arbiters are trained or used. Without torch until weights are read.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from attrs import asdict, field, frozen

from draftmux.errors import ModelError
from draftmux.models.parts import part_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftmux.verifiers.cospec.head import Head

CONFIG, HEAD = "arbiter.json", "head.safetensors"
FORMAT = 1
WHOLE = {"separator": 0, "window": 1, "hidden_size": 1, "draft_layers": 0}  # and the least of each
MOST = 1 << 30


@frozen
class About:
    """What an arbiter is for. `separator`: the id between its segments; `window`: tokens of context that it reads at
    most; `features`: names of the numbers that it reads beside its states; `threshold`: the score that was best on
    validation; `segment_only_lora`: whether the context is read by the draft model as it is."""

    separator: int
    window: int
    hidden_size: int
    features: tuple[str, ...]
    threshold: float
    target: str
    target_fingerprint: str
    draft: str
    draft_fingerprint: str
    draft_layers: int = 0  # 0: not said
    segment_only_lora: bool = False
    metrics: Mapping[str, Any] = field(factory=dict)
    origin: Mapping[str, Any] = field(factory=dict)
    format: int = FORMAT


def save(folder: Path, head: Head, about: About) -> None:
    """The head in float32, and what the arbiter is for; PEFT writes its own files."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().float().contiguous().cpu() for name, tensor in head.state_dict().items()}
    if odd := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
        raise ModelError(f"the arbiter's {odd[0]} is not finite and it is not written; train with lower rates")
    save_file(tensors, folder / HEAD)
    (folder / CONFIG).write_text(json.dumps(_plain(asdict(about)), indent=2, allow_nan=False) + "\n", "utf-8")


def _plain(value: Any) -> Any:
    """For JSON, which knows no number that is none."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_about(source: str, revision: str | None = None) -> About:
    """What an arbiter is for; ModelError when it is none that is understood."""
    path = part_file(source, CONFIG, revision)
    if path is None:
        raise ModelError(f"arbiter '{source}' has no {CONFIG}; `draftmux train arbiter` writes such folders")
    try:
        values = dict(json.loads(path.read_text("utf-8")))
        if values.get("format") != FORMAT:
            raise ValueError(f"format {values.get('format')} is not {FORMAT}, the one that is known here")
        about = About(**{**values, "features": tuple(values["features"])})
        _check(about)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(
            f"arbiter '{source}': {path.name} is not one of `draftmux train arbiter`: {error!r}"
        ) from error
    return about


def _check(about: About) -> None:
    from draftmux.verifiers.cospec.features import NAMES

    if about.features not in ((), NAMES):
        raise ValueError(f"features must be none or {NAMES}: {about.features}")
    for name, least in WHOLE.items():
        value = getattr(about, name)
        if type(value) is not int or not least <= value <= MOST:
            raise ValueError(f"{name} must be a whole number from {least} on: {value!r}")
    if type(about.segment_only_lora) is not bool:
        raise ValueError(f"segment_only_lora must be true or false: {about.segment_only_lora!r}")
    if not isinstance(about.threshold, int | float) or not 0 <= about.threshold <= 1:
        raise ValueError(f"threshold must be between 0 and 1: {about.threshold!r}")


def read_head(source: str, about: About, revision: str | None = None) -> Head:
    """The head; ModelError when its file is missing or holds something else."""
    from safetensors.torch import load_file

    from draftmux.verifiers.cospec.head import Head

    path = part_file(source, HEAD, revision)
    if path is None:
        raise ModelError(f"arbiter '{source}' has no {HEAD}")
    try:
        tensors = load_file(path)
        width = len(tensors["norm.weight"])
        if width != about.hidden_size:
            raise ValueError(f"it is for states of {width} numbers, and {CONFIG} says hidden_size: {about.hidden_size}")
        head = Head(width, len(about.features))
        if odd := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
            raise ValueError(f"{odd[0]} has numbers that are not finite")
        head.load_state_dict(tensors)
    except Exception as error:  # foreign data
        said = " ".join(str(error).split())[:300]
        raise ModelError(f"arbiter '{source}': {path.name} cannot be read: {said}") from error
    return head.eval()
