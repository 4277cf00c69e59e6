"""What each drafter's `propose` takes: counted by drafter, and shown to routers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen

from draftmux.drafting import SequenceDrafter
from draftmux.engine.metrics import Metrics
from draftmux.generation import Generation
from draftmux.routers.cascade import Cascade
from draftmux.testing.drafters import Empty, Oracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.routers import Watching
from draftmux.testing.targets import hash_law, scripted

if TYPE_CHECKING:
    from draftmux.types import Budget, Context, Draft

NAP = 0.003


@frozen
class Slow(SequenceDrafter):
    """Another drafter that takes its time."""

    inner: SequenceDrafter

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        time.sleep(NAP)
        return self.inner.propose_one(context, state, budget)


@pytest.fixture
def trial() -> Trial:
    asks = [Ask((1 + i, 2), Generation(max_new_tokens=24), f"request-{i}") for i in range(3)]
    return Trial.prepare(scripted(hash_law(seed=4, vocab_size=6), 6), asks)


def test_each_drafter_is_timed_by_itself_even_when_asked_in_vain(trial: Trial) -> None:
    router = Cascade(order=["vain", "quick"])
    outcomes = trial.check(lambda truths: {"vain": Slow(Empty()), "quick": Oracle(truths, k=3)}, router)
    for outcome in outcomes.values():
        metrics = outcome.finished.metrics
        # The last step of a request may have no room for a draft; then nobody is asked.
        assert metrics.steps - 1 <= metrics.asked_by_drafter["vain"] <= metrics.steps
        assert metrics.asked_by_drafter["quick"] == metrics.asked_by_drafter["vain"]
        assert metrics.steps_by_drafter["vain"] == 0
        assert metrics.draft_seconds["vain"] >= NAP
        assert metrics.draft_seconds["quick"] > 0
        assert sum(metrics.seconds_by_drafter.values()) <= metrics.seconds["propose"]
        assert metrics.as_dict()["asked_by_drafter"] == dict(metrics.asked_by_drafter)
        assert metrics.as_dict()["seconds_by_drafter"] == dict(metrics.seconds_by_drafter)


def test_a_batch_shares_the_time_of_its_call(trial: Trial) -> None:
    outcomes = trial.check(lambda truths: {"d": Slow(Oracle(truths, k=3))}, max_batch=3)
    total = sum((outcome.finished.metrics for outcome in outcomes.values()), Metrics())
    assert total.seconds_by_drafter["d"] <= total.seconds["propose"]
    assert total.seconds_by_drafter["d"] >= NAP * total.asked_by_drafter["d"]
    assert total.draft_seconds["d"] >= NAP


def test_routers_see_the_mean_of_this_request_so_far(trial: Trial) -> None:
    router = Watching()
    outcomes = serve(assemble(trial.target, {"d": Slow(Oracle(trial.truths, k=3))}, router), trial.asks, 2)
    assert all(outcome.result is not None for outcome in outcomes.values())
    for name in outcomes:
        contexts = [context for context in router.contexts if context.request_id == name]
        assert dict(contexts[0].draft_seconds) == {}  # nothing of requests before it
        assert all(context.draft_seconds["d"] >= NAP for context in contexts[1:])
        with pytest.raises(TypeError):
            contexts[1].draft_seconds["d"] = 0.0  # type: ignore[index]


def test_the_mean_leaves_out_first_calls_which_may_read_a_whole_prompt() -> None:
    metrics = Metrics()
    metrics.record_proposal("d", 9.0)
    assert metrics.draft_seconds == (metrics + metrics).draft_seconds == {"d": 9.0}
    for seconds in (2.0, 4.0):
        metrics.record_proposal("d", seconds)
    assert metrics.draft_seconds == (metrics + metrics).draft_seconds == {"d": 3.0}
    assert metrics.seconds_by_drafter["d"] == 15.0
