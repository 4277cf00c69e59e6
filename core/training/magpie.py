"""Prompts that the target writes itself: a chat is given only up to where the user speaks, and the target goes on.

Source: Magpie (Xu et al., 2024, arXiv 2406.08464). A target that was taught on whole chats writes what users
ask, as widely spread as its own training data; a system message steers what about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmux.engine.scheduler import Scheduler
from draftmux.engine.step import Parts
from draftmux.errors import RequestError
from draftmux.routers.fixed import Fixed
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftmux.protocols import BoundBackend
    from draftmux.training.recipe import Magpie

MARK = "draftmux-user-text"  # stands where the user's text will


def write_prompts(backend: BoundBackend, systems: Sequence[str | None], how: Magpie) -> Iterator[str]:
    """Texts of users as they end, equal and empty ones left out; system messages (None: the template's own) in turn.

    RequestError when the target has no chat template, or one without a place for the text of a user or a system.
    """
    openings = [_opening(backend.tokenizer, system) for system in systems]
    scheduler = Scheduler(Parts(backend, {}, Fixed(), ExactMatch()), backend.tokenizer, max_batch=how.batch)
    for number in range(how.count):
        scheduler.submit(openings[number % len(openings)], how.generation(number))
    seen = {""}
    for delta in scheduler.run():
        if delta.error is not None:
            raise delta.error
        if delta.result is not None and (text := delta.result.text.strip()) not in seen:
            seen.add(text)
            yield text


def _opening(tokenizer: Any, system: str | None) -> tuple[int, ...]:
    """Token ids of a chat up to the first letter of the user."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise RequestError("the target's tokenizer has no chat template, so it cannot write what a user asks")
    messages = [{"role": "user", "content": MARK}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception as error:  # some templates refuse a system message
        raise RequestError(f"the target's chat template refuses {messages}: {error}") from error
    before, mark, _ = text.partition(MARK)
    if not mark or (system is not None and system.strip() not in before):
        raise RequestError(f"the target's chat template leaves out a part of {messages}: it gives {text!r}")
    return tuple(tokenizer(before, add_special_tokens=False)["input_ids"])
