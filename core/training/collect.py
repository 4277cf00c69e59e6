"""From prompts to samples: the target answers what is missing on disk, and the held-out ones are put apart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from draftmux.errors import RequestError
from draftmux.training.answers import Sample, answer, answer_to_disk, read_samples, shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from draftmux.protocols import BoundBackend
    from draftmux.training.prompts import Prompt
    from draftmux.training.recipe import Answers
    from draftmux.types import Tap


def collect(
    open_backend: Callable[[], BoundBackend],
    settings: Mapping[str, Any],
    taps: tuple[Tap, ...],
    prompts: Sequence[Prompt],
    folder: Path,
    how: Answers,
) -> Iterator[int]:
    """Answer to disk; yields how many answers are there. The target is loaded only if some are missing.

    RequestError when the folder holds answers with other `settings` (of the target, say) or other states.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / "about.json"
    own = json.dumps({**settings, **how.kept, "taps": [str(tap) for tap in taps]}, sort_keys=True)
    if about.is_file() and about.read_text("utf-8") != own:
        raise RequestError(
            f"{folder} holds answers with {about.read_text('utf-8')}, and {own} is asked for; train into another "
            f"folder, or remove this one"
        )
    about.write_text(own, "utf-8")

    def samples(missing: Sequence[Prompt]) -> Iterator[Sample]:
        if missing:
            yield from answer(open_backend(), taps, missing, how.of, how.batch)

    yield from answer_to_disk(folder, prompts, samples)


def split(folder: Path, prompts: Sequence[Prompt], share: float, least: int = 1) -> tuple[list[Sample], list[Sample]]:
    """Answers to `prompts` on disk: to learn from, and held out. RequestError when one of them has too few."""
    held = {prompt.key for prompt in prompts if prompt.held_out(share)}
    wanted = {prompt.key for prompt in prompts}
    found = [sample for path in shards(folder) for sample in read_samples(path) if sample.key in wanted]
    learn = [sample for sample in found if sample.key not in held]
    kept = [sample for sample in found if sample.key in held]
    if len(learn) < least or len(kept) < least:
        raise RequestError(
            f"{folder} has {len(learn)} answers to learn from and {len(kept)} held out; both must be {least} or more: "
            f"give more prompts, or another --held-out"
        )
    return learn, kept
