"""Drafters that a router only wants to look at: asked, checked, shown, and never scored."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from draftmux.drafting import TokenDrafter
from draftmux.errors import DraftmuxError
from draftmux.generation import Generation
from draftmux.routing import BaseRouter
from draftmux.testing.constraints import Automaton
from draftmux.testing.drafters import Corrupt, Oracle
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.sampled import SampledTree
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Choice, Context, Draft, Step
from draftmux.verifiers.rejection import Rejection

SIZE = 6
TARGET = hash_law(3, SIZE)


@frozen
class Look(BaseRouter):
    """Plays one drafter and looks at others."""

    played: str | None
    beside: dict[str, Budget]
    seen: list[Step]
    otherwise: tuple[str, ...] = ()

    def choose(self, state: Any, context: Context, drafters: Any) -> Choice:
        return Choice(self.played, Budget(3, 3), self.otherwise, self.beside)

    def observe(self, state: Any, step: Step) -> None:
        self.seen.append(step)


def run(router: Look, drafters: dict[str, Any], policy: Any = "raise", **settings: Any) -> Any:
    ask = Ask((1, 2), Generation(**{"max_new_tokens": 12, **settings}), "one")
    return serve(assemble(scripted(TARGET, SIZE), drafters, router, policy=policy), [ask])["one"]


def truth(length: int) -> list[int]:
    ask = Ask((1, 2), Generation(max_new_tokens=length), "one")
    return [1, 2, *serve(assemble(scripted(TARGET, SIZE)), [ask])["one"].finished.tokens]


def drafters() -> dict[str, Any]:
    text = truth(30)
    return {"good": Oracle([text], 8), "bad": Corrupt([text], SIZE, 8, 1)}


def test_what_is_looked_at_is_shown_within_its_budget_and_not_scored() -> None:
    seen: list[Step] = []
    outcome = run(Look("bad", {"good": Budget(5, 5)}, seen), drafters())
    metrics = outcome.finished.metrics
    assert outcome.finished.tokens == tuple(truth(12)[2:])
    assert metrics.steps_by_drafter["bad"] > 0 == metrics.steps_by_drafter["good"]
    assert metrics.asked_by_drafter["good"] == metrics.asked_by_drafter["bad"] > 0
    for step in seen[:-1]:
        assert set(step.beside) == {"good"} and len(step.beside["good"]) <= 5
    assert len(seen[0].beside["good"]) == 5 and len(seen[0].draft) == 3


def test_nobody_is_asked_twice() -> None:
    seen: list[Step] = []
    outcome = run(Look("good", {"good": Budget(8), "bad": Budget(8)}, seen), drafters())
    metrics = outcome.finished.metrics
    assert metrics.asked_by_drafter["good"] == metrics.steps_by_drafter["good"]
    assert set(seen[0].beside) == {"good", "bad"} and seen[0].beside["good"] is seen[0].draft


def test_a_look_is_had_where_nothing_is_played() -> None:
    seen: list[Step] = []
    outcome = run(Look(None, {"good": Budget(4)}, seen), drafters())
    assert outcome.finished.metrics.drafted == 0 and outcome.finished.metrics.steps == 12
    text = truth(12)
    for at, step in enumerate(seen):
        draft = step.beside.get("good", Draft.empty())
        assert draft.tokens.tolist() == text[2 + at : 2 + at + len(draft)]


def test_history_keeps_no_drafts_that_were_looked_at() -> None:
    seen: list[Step] = []
    run(Look("good", {"bad": Budget(4)}, seen), drafters())
    assert seen[0].beside and not seen[0].without_tensors().beside


def test_what_a_constraint_forbids_is_not_shown() -> None:
    seen: list[Step] = []
    run(Look(None, {"good": Budget(4)}, seen), drafters(), constraint=Automaton(5))
    assert any(len(step.beside.get("good", ())) < 4 for step in seen)


class Broken(TokenDrafter):
    def draft(self, tokens: Any, budget: Budget) -> Any:
        raise KeyError("broken")


def test_a_drafter_that_fails_at_it_ends_the_request_or_is_left_out() -> None:
    outcome = run(Look("good", {"broken": Budget(4)}, []), {**drafters(), "broken": Broken()})
    assert isinstance(outcome.error, DraftmuxError) and "broken" in str(outcome.error)
    seen: list[Step] = []
    skipped = run(Look("good", {"broken": Budget(4)}, seen), {**drafters(), "broken": Broken()}, "skip")
    assert skipped.finished.tokens == tuple(truth(12)[2:])
    assert all(not len(step.beside.get("broken", ())) for step in seen)


@pytest.mark.parametrize("beside", [{"nobody": Budget(3)}, {"good": 3}, ["good"]])
def test_a_choice_that_looks_at_nonsense_is_refused(beside: Any) -> None:
    outcome = run(Look("good", beside, []), drafters())
    assert isinstance(outcome.error, DraftmuxError)


@frozen
class Undrawn(SampledTree):
    """Declares that it samples, and fails."""

    def propose(self, requests: Any) -> Any:
        raise RuntimeError("no draft")


def test_a_sampling_drafter_that_is_only_looked_at_may_fail() -> None:
    """Played, it would end the request even with `skip`: going on without a drawn draft bends the law. Here nothing
    hangs on it."""
    broken = Undrawn(lambda prefix: (1 / SIZE,) * SIZE, (1,))
    ask = Ask((1, 2), Generation(max_new_tokens=5, temperature=1.0), "one")
    for router, ends in ((Look(None, {"broken": Budget(3)}, []), False), (Look("broken", {}, []), True)):
        parts = assemble(scripted(TARGET, SIZE), {"broken": broken}, router, verifier=Rejection(), policy="skip")
        outcome = serve(parts, [ask])["one"]
        assert (outcome.error is not None) is ends
