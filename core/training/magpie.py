"""Prompts that the target writes itself: a chat is given only up to where the user speaks, and the target goes on.

Source: Magpie (Xu et al., 2024, arXiv 2406.08464). A target that was taught on whole chats writes what users
ask, as widely spread as its own training data; a system message steers what about.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from attrs import asdict, evolve, frozen

from draftmux.engine.scheduler import Scheduler
from draftmux.engine.step import Parts
from draftmux.errors import RequestError
from draftmux.routers.fixed import Fixed
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend
    from draftmux.training.recipe import Magpie

MARK = "draftmux-user-text"  # stands where the user's text will
HALF = "\ufffd"  # what is left of a character that was cut in two


@frozen
class Turn:
    """What a chat template puts around a user's text: the ids before it, and how the text ends."""

    before: tuple[int, ...]
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizer: Any, system: str | None) -> Turn:
        """After that system message, or the template's own; RequestError when there is no place for one of both."""
        way_out = "take a target with a chat template that has it"
        if getattr(tokenizer, "chat_template", None) is None:
            raise RequestError(f"the target has no chat template, so it cannot write what a user asks; {way_out}")
        messages = [{"role": "user", "content": MARK}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
            way_out = "leave out --system"
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # some templates refuse a system message
            raise RequestError(f"the target's chat template refuses {messages}: {error}; {way_out}") from error
        before, mark, after = text.partition(MARK)
        if not mark or not before.strip() or (system is not None and system.strip() not in before):
            raise RequestError(
                f"the target's chat template has no place for a part of {messages}, or no words before it: it gives "
                f"{text!r}; {way_out}"
            )
        # A space at the end would be a token of its own, where the target knows words that begin with one.
        ids = tuple(tokenizer(before.rstrip(" "), add_special_tokens=False)["input_ids"])
        return evolve(_ended(tokenizer, after.strip()), before=ids)


def _ended(tokenizer: Any, after: str) -> Turn:
    """A turn that ends where what the template puts behind it begins."""
    ids = tokenizer(after, add_special_tokens=False)["input_ids"] if after else []
    if ids and ids[0] in getattr(tokenizer, "added_tokens_decoder", {}):
        return Turn((), stop_ids=(ids[0],))
    return Turn((), stop=(after,) if after else ())


def settings_of(spec: ModelSpec, systems: Sequence[str | None], how: Magpie) -> str:
    """A short hash of all that prompt N depends on, for its id."""
    own = {**asdict(how), "count": 0, "batch": 0, "systems": list(systems), "target": spec.source, "dtype": spec.dtype}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:12]


def written(path: Path, settings: str) -> set[int]:
    """Numbers of the prompts that `path` holds; a last line that was cut is taken off.

    RequestError when it holds anything else than prompts of these settings.
    """
    if not path.exists():
        return set()
    try:
        text = path.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]
        pairs = [json.loads(line)["id"].rsplit("-", 1) for line in whole.split("\n") if line]
        if any(name != settings for name, _ in pairs):
            raise ValueError("a line has another id")
        numbers = {int(number) for _, number in pairs}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"{path} is there and is not of this command ({error}); give another --out, or remove it"
        ) from error
    if whole != text:
        path.write_text(whole, "utf-8")
    return numbers


def write_prompts(
    backend: BoundBackend, systems: Sequence[str | None], how: Magpie, done: frozenset[int] = frozenset()
) -> Iterator[tuple[int, str]]:
    """Number and text of every prompt that is not `done`, as they end. Empty ones, and those that fail, are left out.

    System messages (None: the template's own) take turns. RequestError as `Turn.of`.
    """
    turns = [Turn.of(backend.tokenizer, system) for system in systems]
    scheduler = Scheduler(Parts(backend, {}, Fixed(), ExactMatch()), backend.tokenizer, max_batch=how.batch)
    for number in range(how.count):
        if number not in done:
            turn = turns[number % len(turns)]
            generation = evolve(how.generation(number), stop=list(turn.stop), stop_ids=list(turn.stop_ids))
            scheduler.submit(turn.before, generation, str(number))
    for delta in scheduler.run():
        if delta.result is not None and (text := delta.result.text.strip().rstrip(HALF)):
            yield int(delta.request_id), text
