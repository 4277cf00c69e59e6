"""Runs requests through the real engine and compares what comes out with what plain decoding must give.

Knows how parts are put together and what a result promises; nothing of any particular drafter, router or verifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field, frozen

from draftmux.engine.guard import Guard
from draftmux.engine.scheduler import Scheduler
from draftmux.engine.step import Parts
from draftmux.errors import RequestError
from draftmux.results import TARGET
from draftmux.routers.fixed import Fixed
from draftmux.testing.reference import Ask, Expected, expect
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from draftmux.backends.scripted import Law
    from draftmux.errors import DraftmuxError
    from draftmux.protocols import BoundBackend, Drafter, Router, Verifier
    from draftmux.results import Delta, Piece, Result

NEAR = 1e-9


@define(eq=False)
class Outcome:
    """What one request gave: its deltas in order, and the result or the error that ended it."""

    deltas: list[Delta] = field(factory=list)
    result: Result | None = None
    error: DraftmuxError | None = None

    @property
    def pieces(self) -> list[Piece]:
        """All streamed tokens."""
        return [piece for delta in self.deltas for piece in delta.pieces]

    @property
    def finished(self) -> Result:
        """The result; AssertionError when there is none."""
        assert self.result is not None, f"the request ended without a result: {self.error!r}"
        return self.result


def assemble(
    target: BoundBackend,
    drafters: Mapping[str, Drafter] | None = None,
    router: Router | None = None,
    *,
    verifier: Verifier | None = None,
    policy: Literal["raise", "skip"] = "raise",
) -> Parts:
    """Parts of a pipeline without a file. By default the first drafter always drafts, and exact match verifies."""
    drafters = drafters or {}
    router = router or Fixed(drafter=next(iter(drafters), None))
    return Parts(target, drafters, router, verifier or ExactMatch(), Guard(policy))


def serve(parts: Parts, asks: Iterable[Ask], max_batch: int = 1) -> dict[str, Outcome]:
    """Run all requests through one scheduler; outcomes by request id. RequestError when one is refused at once."""
    scheduler = Scheduler(parts, parts.backend.tokenizer, max_batch=max_batch)
    outcomes = {}
    for ask in asks:
        scheduler.submit(ask.tokens, ask.generation, ask.request_id)
        outcomes[ask.request_id] = Outcome()
    for delta in scheduler.run():
        outcome = outcomes[delta.request_id]
        assert outcome.result is None and outcome.error is None, "a request went on after its end"
        outcome.deltas.append(delta)
        outcome.result, outcome.error = delta.result, delta.error
    return outcomes


def open_sequences(target: Any) -> int:
    """Sequences that the backend still holds."""
    return target.open_sequences if hasattr(target, "open_sequences") else len(target._open)


def check_outcome(outcome: Outcome, expected: Expected) -> None:
    """The request ended as plain decoding ends it: tokens, reason, text, log-probabilities, stream, counts."""
    if expected.failed:
        assert isinstance(outcome.error, RequestError), f"no token can follow, but the outcome is {outcome}"
        return
    result = outcome.finished
    assert result.tokens == expected.tokens, f"tokens {result.tokens} should be {expected.tokens}"
    assert result.finish_reason == expected.finish_reason, result.finish_reason
    assert result.text == expected.text, f"text {result.text!r} should be {expected.text!r}"
    if result.logprobs is not None:
        check_near(result.logprobs, expected.logprobs)
    check_stream(outcome, expected)
    check_counts(outcome)


def check_near(found: Sequence[float], expected: Sequence[float]) -> None:
    """As many numbers, each within 1e-9."""
    assert len(found) == len(expected), f"{len(found)} values should be {len(expected)}"
    worst = max((abs(a - b) for a, b in zip(found, expected, strict=True)), default=0.0)
    assert worst <= NEAR, f"values are off by {worst}"


def check_stream(outcome: Outcome, expected: Expected) -> None:
    """The stream adds up to the result, and never shows a character before its last byte."""
    result = outcome.finished
    assert tuple(piece.token for piece in outcome.pieces) == result.tokens
    assert "".join(delta.text for delta in outcome.deltas) == result.text
    if result.logprobs is not None:
        assert tuple(piece.logprob for piece in outcome.pieces) == result.logprobs
    shown, count = "", 0
    for delta in outcome.deltas[:-1]:
        assert delta.pieces, "a step gave no token"
        shown, count = shown + delta.text, count + len(delta.pieces)
        assert expected.wholes[count].startswith(shown), f"{shown!r} was shown too early"


def check_counts(outcome: Outcome) -> None:
    """Steps, drafted, accepted and delivered tokens fit together; the last step alone may be cut."""
    result, metrics = outcome.finished, outcome.finished.metrics
    assert metrics.steps == len(outcome.deltas)
    assert metrics.accepted <= metrics.drafted
    guessed = sum(piece.source != TARGET for piece in outcome.pieces)
    cut = metrics.accepted + metrics.steps - len(result.tokens)
    assert cut >= 0 and guessed <= metrics.accepted
    assert guessed + metrics.steps - len(result.tokens) in (0, 1), "pieces name the wrong sources"
    assert sum(metrics.accepted_by_drafter.values()) == metrics.accepted


Truths = list[list[int]]


@frozen(eq=False)
class Trial:
    """A target, requests for it, and what plain decoding must give for each."""

    target: Any
    asks: tuple[Ask, ...]
    expected: Mapping[str, Expected]

    @classmethod
    def prepare(cls, target: Any, asks: Sequence[Ask], law: Law | None = None) -> Trial:
        """Decode every request by the book; a scripted target brings its own law."""
        law = law or target.law
        return cls(target, tuple(asks), {ask.request_id: expect(ask, target, law) for ask in asks})

    @property
    def truths(self) -> Truths:
        """Whole sequences, prompts included, beyond their ends: what oracles replay."""
        return [expected.truth for expected in self.expected.values()]

    def check(
        self,
        drafters: Callable[[Truths], Mapping[str, Drafter]] | None = None,
        router: Router | None = None,
        max_batch: int = 1,
    ) -> dict[str, Outcome]:
        """Run with these drafters (none: plainly) and compare; nothing may be at fault, and nothing stay open."""
        parts = assemble(self.target, drafters(self.truths) if drafters else {}, router)
        outcomes = serve(parts, self.asks, max_batch)
        for name, outcome in outcomes.items():
            check_outcome(outcome, self.expected[name])
            if outcome.result is not None:
                assert not outcome.result.metrics.faults, outcome.result.metrics.faults
        assert open_sequences(self.target) == 0, "sequences stay open"
        return outcomes
