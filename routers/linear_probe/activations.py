"""Hidden states of texts, all layers at once: a random few of each answer, on disk by tap, with their labels."""

from __future__ import annotations

import hashlib
import json
import random
from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import asdict, frozen
from safetensors import safe_open
from safetensors.torch import save_file

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.protocols import BoundBackend
    from draftmux.types import Tap

TEXTS = 64  # a shard
ABOUT = "states.json"


@frozen(eq=False)
class Text:
    """A prompt and an answer to it: `ids (T,)`. `role` says what it is for, `family` what kind its prompt is of."""

    ids: tuple[int, ...]
    prompt_length: int
    role: str
    family: str = ""
    greedy: bool = True
    ended: bool = True  # by the target, and not by a limit


@frozen
class Draws:
    """Which positions are looked at, and of which target, by its fingerprint and number format."""

    per_text: int
    seed: int
    target: str


@frozen(eq=False)
class Examples:
    """States `(n, d)` in float32 and labels `(n, shifts)`; `texts (n,)` says of which text each one is."""

    states: Tensor
    labels: Tensor
    texts: NDArray[np.int64]


def gather(
    backend: BoundBackend,
    taps: Sequence[Tap],
    texts: Sequence[Text],
    labels: Sequence[NDArray[np.int8]],
    draws: Draws,
    folder: Path,
) -> Iterator[int]:
    """Write the states of some random positions of every answer; yields texts done. Goes on where it stopped.

    `labels` are those of a Labelling; a position is one of the answer that has them. What is there of another target,
    of other texts or with other labels is refused.
    """
    content = hashlib.sha256()
    for text, own in zip(texts, labels, strict=True):
        content.update(repr((text.ids, text.prompt_length)).encode() + own.tobytes())
    _same(folder, {"taps": [str(tap) for tap in taps], "content": content.hexdigest(), **asdict(draws)})
    for start in range(0, len(texts), TEXTS):
        path = folder / f"states-{start // TEXTS:05}.safetensors"
        if not path.is_file():
            _write(path, [_of(backend, taps, texts, labels, i, draws) for i in range(start, len(texts))[:TEXTS]])
        yield min(start + TEXTS, len(texts))


def _same(folder: Path, own: Mapping[str, object]) -> None:
    """Those of another run are no use."""
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / ABOUT
    if about.is_file() and json.loads(about.read_text("utf-8")) != own:
        raise RequestError(f"{folder} holds hidden states of another run; remove it, or take another --out")
    about.write_text(json.dumps(own), "utf-8")


def _of(
    backend: BoundBackend,
    taps: Sequence[Tap],
    texts: Sequence[Text],
    labels: Sequence[NDArray[np.int8]],
    number: int,
    draws: Draws,
) -> tuple[Tensor, Tensor, int]:
    text = texts[number]
    first, own = text.prompt_length, labels[number]
    able = [place for place in range(first, len(own)) if own[place, 0] >= 0]
    places = sorted(random.Random(f"{draws.seed} {number}").sample(able, min(draws.per_text, len(able))))
    if not places:
        return torch.zeros(len(taps), 0, 0), torch.zeros(0, own.shape[1], dtype=torch.uint8), number
    states = states_of(backend, text)
    found = torch.stack([states[tap][places].to(torch.bfloat16).cpu() for tap in taps])
    return found, torch.from_numpy(own[places].astype(np.uint8)), number


def states_of(backend: BoundBackend, text: Text) -> Mapping[Tap, Tensor]:
    """States `(T-1, d)` of all positions but the last, as a step that stands there reads them."""
    opened = backend.open(text.ids)
    backend.close(opened.sequence)
    return opened.taps


def _write(path: Path, found: Sequence[tuple[Tensor, Tensor, int]]) -> None:
    some = [each for each in found if len(each[1])] or found[:1]  # states of none have no width
    tensors = {
        "states": torch.cat([states for states, _, _ in some], 1),  # (taps, n, d)
        "labels": torch.cat([labels for _, labels, _ in some]),
        "texts": torch.tensor([number for _, labels, number in some for _ in labels], dtype=torch.int64),
    }
    part = path.with_suffix(".partial")
    save_file(tensors, part)
    part.replace(path)


def read(folder: Path, tap: int) -> Examples:
    """All examples of one tap, by its number."""
    states, labels, texts = [], [], []
    for path in sorted(folder.glob("states-*.safetensors")):
        with safe_open(path, "pt") as file:
            if not len(file.get_tensor("texts")):
                continue
            states.append(file.get_slice("states")[tap : tap + 1][0].float())
            labels.append(file.get_tensor("labels").bool())
            texts.append(file.get_tensor("texts").numpy())
    if not states:
        raise RequestError(f"{folder} has no hidden state to learn from: all answers are too short")
    return Examples(torch.cat(states), torch.cat(labels), np.concatenate(texts))
