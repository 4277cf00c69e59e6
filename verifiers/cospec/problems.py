"""Problems that can be checked: a chat, and the reference that a task holds the answer against."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.errors import PluginError, RequestError
from draftmux.training.prompts import Prompt, json_lines, prompt_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftmux.protocols import Task


@frozen
class Problem:
    """`prompt` as for other training, with its `reference`."""

    prompt: Prompt
    reference: str

    @property
    def key(self) -> str:
        """Stands for the content."""
        return f"{self.prompt.key}-{hashlib.sha256(self.reference.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    @property
    def family(self) -> str:
        """What kind its writer says it is of."""
        return self.prompt.family


def read_problems(path: Path, limit: int | None = None) -> list[Problem]:
    """One JSON object a line: a prompt as other training takes it, and `reference`; those with one prompt count once.
    RequestError naming the line that cannot be used."""
    found: dict[str, Problem] = {}
    for number, values in json_lines(path):
        problem = _problem(values, f"{path}:{number}")
        found.setdefault(problem.prompt.key, problem)
        if limit is not None and len(found) == limit:
            break
    if not found:
        raise RequestError(f"{path} holds no problems; give one JSON object a line, with a prompt and its reference")
    return list(found.values())


def _problem(values: Any, place: str) -> Problem:
    prompt = prompt_of(values, place)
    reference = values.get("reference")
    if isinstance(reference, list) and reference and isinstance(reference[0], str):
        reference = reference[0]
    if not isinstance(reference, str) or not reference.strip():
        raise RequestError(f"{place} has no `reference`, a text that the answer is held against")
    return Problem(prompt, reference)


def solves(task: Task, answer: str, problem: Problem) -> bool:
    """What a task says of an answer; PluginError when it says nothing."""
    try:
        return bool(task.solved(answer, problem.reference))
    except Exception as error:  # somebody else's code
        raise PluginError(
            f"task {type(task).__name__} failed on the reference {problem.reference[:60]!r} with the answer "
            f"{answer[:60]!r}: {error!r}"
        ) from error


def formed(task: Task, answer: str) -> bool:
    """Whether an answer has the form that a task asks for; one that asks for none takes all. PluginError as above."""
    asked = getattr(task, "formed", None)
    try:
        return asked is None or bool(asked(answer))
    except Exception as error:  # somebody else's code
        raise PluginError(f"task {type(task).__name__} failed on the answer {answer[:60]!r}: {error!r}") from error


def digest(*parts: Sequence[Problem]) -> str:
    """Stands for all of them, and how they are parted."""
    keys = [sorted(problem.key for problem in part) for part in parts]
    return hashlib.sha256(repr(keys).encode()).hexdigest()[:16]


def parted(problems: Sequence[Problem], share: float) -> tuple[list[Problem], list[Problem]]:
    """Those to learn from, and a share held out, by their content; RequestError when one of them is empty."""
    learn = [problem for problem in problems if not problem.prompt.held_out(share)]
    held = [problem for problem in problems if problem.prompt.held_out(share)]
    if not learn or not held:
        raise RequestError(
            f"{len(learn)} problems to learn from and {len(held)} held out; give more, or change --held-out ({share})"
        )
    return learn, held
