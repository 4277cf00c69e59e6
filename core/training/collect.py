"""From prompts to samples: the target answers what is missing on disk, and the held-out ones are put apart."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from draftmux.errors import RequestError
from draftmux.training.answers import answer, answer_to_disk, answered, read_samples, shards
from draftmux.types import Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from draftmux.protocols import BoundBackend
    from draftmux.training.answers import Sample
    from draftmux.training.prompts import Prompt
    from draftmux.training.recipe import Answers

LOCK = ".lock"  # held while answers are written
ABOUT = "about.json"  # what all answers of a folder have alike


def collect(
    open_backend: Callable[[tuple[Tap, ...]], BoundBackend],
    settings: Mapping[str, Any],
    taps: tuple[Tap, ...],
    prompts: Sequence[Prompt],
    folder: Path,
    how: Answers,
) -> Iterator[int]:
    """Answer to disk; yields how many answers are there. The target is loaded only if some are missing.

    A folder may hold more states than `taps`; RequestError when it lacks some, has answers with other `settings` (of
    the target, say), or when another run is answering into it.
    """
    kept = _taps_like(folder, {**settings, **how.kept, "taps": [str(tap) for tap in taps]})
    there = answered(folder, prompts)
    yield len(there)
    if len(there) < len({prompt.key for prompt in prompts}):
        with _alone(folder):
            there = answered(folder, prompts)
            missing = [prompt for prompt in prompts if prompt.key not in there]
            for count in answer_to_disk(folder, answer(open_backend(kept), kept, missing, how.of, how.batch)):
                yield len(there) + count


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One run at a time; RequestError while another one has it, or when nothing can be written there."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise RequestError(f"another run is answering into {folder}; start this one when that one trains") from error
    except OSError as error:
        raise RequestError(f"answers are missing, and {folder} cannot be written to: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _taps_like(folder: Path, own: dict[str, Any]) -> tuple[Tap, ...]:
    """The states that are kept there, once it is sure that answers are alike in all that `own` says."""
    about = folder / ABOUT
    folder.mkdir(parents=True, exist_ok=True)
    if about.is_file():
        there = json.loads(about.read_text("utf-8"))
        if {**there, "taps": 0} != {**own, "taps": 0} or not set(own["taps"]) <= set(there["taps"]):
            raise RequestError(
                f"{folder} holds answers with {json.dumps(there)}, and {json.dumps(own)} is asked for; take another "
                f"folder, or remove this one"
            )
    else:
        about.write_text(json.dumps(own, sort_keys=True), "utf-8")
    return _taps_of(folder)


def split(
    folder: Path, taps: Sequence[Tap], prompts: Sequence[Prompt], share: float, least: int = 1
) -> tuple[list[Sample], list[Sample]]:
    """Answers to `prompts` on disk, with the states of `taps`: to learn from, and held out. RequestError when one of
    them has too few."""
    there = _taps_of(folder)
    columns = [there.index(tap) for tap in taps]
    held = {prompt.key for prompt in prompts if prompt.held_out(share)}
    wanted = {prompt.key for prompt in prompts}
    found = [
        sample.of(columns, len(there))
        for path in shards(folder)
        for sample in read_samples(path)
        if sample.key in wanted
    ]
    learn = [sample for sample in found if sample.key not in held]
    kept = [sample for sample in found if sample.key in held]
    if len(learn) < least or len(kept) < least:
        raise RequestError(
            f"{folder} has {len(learn)} answers to learn from and {len(kept)} held out; both must be {least} or more: "
            f"give more prompts, or another --held-out"
        )
    return learn, kept


def _taps_of(folder: Path) -> tuple[Tap, ...]:
    """The states that the answers in `folder` have, in their order."""
    return tuple(Tap.parse(text) for text in json.loads((folder / ABOUT).read_text("utf-8"))["taps"])
