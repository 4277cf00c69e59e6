"""Routers that look at a draft before it is scored: what they leave of it is scored, and the text does not change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.engine.guard import checked_nodes
from draftmux.errors import DraftError
from draftmux.generation import Generation
from draftmux.routing import BaseRouter
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Oracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.routers import RandomRouter
from draftmux.testing.sampled import SampledTree
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Choice, Context, Draft, Step
from draftmux.verifiers.rejection import Rejection

SIZE = 6
TARGET = scripted(hash_law(3, SIZE), SIZE)


class Keep(BaseRouter):
    """Scores the first `nodes` nodes of a draft."""

    def __init__(self, nodes: int) -> None:
        self.nodes, self.seen, self.steps = nodes, list[Draft](), list[Step]()

    def choose(self, state: Any, context: Context, drafters: Any) -> Choice:
        first, *others = drafters
        return Choice(first, Budget(4), tuple(others), {first: Budget(4)})

    def trim(self, state: Any, context: Context, name: str, draft: Draft) -> range:
        self.seen.append(draft)
        return range(min(self.nodes, len(draft)))

    def observe(self, state: Any, step: Step) -> None:
        self.steps.append(step)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), target=some.hash_targets(), seed=some.SEEDS, batch=st.sampled_from((1, 3)))
def test_the_text_is_that_of_plain_decoding(data: Any, target: Any, seed: int, batch: int) -> None:
    trial = Trial.prepare(target, data.draw(some.asks(target, count=3)))
    trial.check(data.draw(some.drafter_sets(target.vocab_size)), RandomRouter(seed, trims=True), batch)


@pytest.mark.parametrize("nodes", [0, 2, 9])
def test_what_is_kept_is_scored_and_the_whole_is_shown(nodes: int) -> None:
    ask = Ask((1, 2), Generation(max_new_tokens=9), "one")
    router = Keep(nodes)
    truths = Trial.prepare(TARGET, [ask]).truths
    outcome = serve(assemble(TARGET, {"good": Oracle(truths, 4)}, router), [ask])["one"].finished
    assert [*ask.tokens, *outcome.tokens] == list(truths[0][: len(outcome.tokens) + 2])
    assert outcome.metrics.accepted == outcome.metrics.drafted == sum(len(step.draft) for step in router.steps)
    assert max(len(step.draft) for step in router.steps) == min(nodes, 4)
    assert [len(step.beside["good"]) for step in router.steps if step.beside["good"]] == list(map(len, router.seen))


def test_where_nothing_is_kept_the_next_drafter_is_asked() -> None:
    ask = Ask((1, 2), Generation(max_new_tokens=9), "one")
    truths = Trial.prepare(TARGET, [ask]).truths
    router = Keep(0)
    drafters = {"first": Oracle(truths, 4), "second": Oracle(truths, 2)}
    outcome = serve(assemble(TARGET, drafters, router), [ask])["one"].finished
    assert outcome.metrics.asked_by_drafter["second"] == outcome.metrics.asked_by_drafter["first"] > 0


def test_a_draft_that_was_drawn_stays_whole() -> None:
    """Whoever drops a drawn token because of its value bends the law."""
    router = Keep(0)
    drafter = SampledTree(lambda prefix: (1 / SIZE,) * SIZE, (1, 1))
    ask = Ask((1, 2), Generation(max_new_tokens=9, temperature=1.0), "one")
    outcome = serve(assemble(TARGET, {"drawn": drafter}, router, verifier=Rejection()), [ask])["one"].finished
    assert not router.seen and outcome.metrics.drafted > 0


@pytest.mark.parametrize(
    ("nodes", "said"), [([3], "nodes 0 to 2"), ([-1], "nodes 0 to 2"), ([0, 2], "not its parent 1"), ("ab", "str")]
)
def test_what_is_no_part_of_the_draft_is_refused(nodes: Any, said: str) -> None:
    with pytest.raises((DraftError, TypeError), match=said):
        checked_nodes(nodes, Draft.chain([1, 2, 3]))
