"""A plugin that writes into what it was shown changes nothing but its own view."""

from __future__ import annotations

from draftmux.drafting import SequenceDrafter
from draftmux.engine.scheduler import Scheduler
from draftmux.generation import Generation
from draftmux.testing.harness import assemble
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Context, Draft


class Writer(SequenceDrafter):
    def propose_one(self, context: Context, state: object, budget: Budget) -> Draft:
        context.tokens.flags.writeable = True
        context.tokens[:] = 0
        return Draft.chain([1, 2][: budget.max_depth])


def text(*drafters: SequenceDrafter) -> tuple[int, ...]:
    parts = assemble(scripted(hash_law(3, 6), 6), {f"d{i}": drafter for i, drafter in enumerate(drafters)})
    scheduler = Scheduler(parts)
    scheduler.submit((4, 1, 5), Generation(max_new_tokens=12, repetition_penalty=1.7, no_repeat_ngram_size=2))
    return next(delta.result.tokens for delta in scheduler.run() if delta.result is not None)


def test_writing_into_the_context_changes_no_token() -> None:
    assert text(Writer()) == text()
