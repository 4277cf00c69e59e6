"""Routers that learn from what drafts brought, before verifiers that weigh p against q: the law stays the target's.

Two drafters that sample, one close to the target and one far from it, are played and looked at by turns, so that
choices depend on earlier draws in every way they can. A router that looks at a draft before it chooses is caught.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve, frozen

from draftmux.backends.scripted import ScriptedTarget
from draftmux.protocols import Resources
from draftmux.routers.bandit.router import Arm, Bandit
from draftmux.routers.cost_aware.router import CostAware
from draftmux.routing import BaseRouter
from draftmux.testing.frequencies import PLAIN, TOKENS, TOY, Played, first_of_rounds, p_value, pairs
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.sampled import SampledTree
from draftmux.types import Budget, Choice, Context, Step
from draftmux.verifiers.block import Block
from draftmux.verifiers.rejection import Rejection

NEAR = SampledTree(TOY.q, (1, 1))
FAR = SampledTree(lambda prefix: (0.1, 0.1, 0.8), (1, 1, 1))
DRAFTERS = {"near": NEAR, "far": FAR}
LEAST = 1e-4
ARMS = [Arm(drafter="near"), Arm(drafter="far", budget=Budget(2)), Arm()]
ROUTERS = {
    "full information": Bandit(arms=ARMS, policy="full-information", reward="length", memory="process"),
    "exp3": Bandit(arms=ARMS, policy="exp3", reward="length"),
    "thompson": Bandit(arms=ARMS, policy="thompson", reward="length", memory="start"),
    "cost-aware": CostAware(drafters=["near", "far"], budget=Budget(3, 3, 1), matches=[1], memory="process"),
}


@frozen(eq=False)
class Noted(BaseRouter):
    """Another router, and what it saw."""

    inner: Any
    roots: list[int]
    steps: list[Step]

    def begin(self, context: Context) -> Any:
        return self.inner.begin(context)

    def choose(self, state: Any, context: Context, drafters: Any) -> Choice:
        self.roots.append(int(context.tokens[-1]))
        return self.inner.choose(state, context, drafters)  # type: ignore[no-any-return]

    def observe(self, state: Any, step: Step) -> None:
        self.steps.append(step)
        self.inner.observe(state, step)


def play(router: Any, verifier: Any, requests: int = 16) -> Played:
    target = ScriptedTarget(TOY.p, TOY.vocab_size, costs={n: 1.0 + 0.05 * n for n in range(99)})
    noted = Noted(router.bind(Resources(backend=target)), [], [])
    asks = [Ask(TOY.prompt, evolve(PLAIN, max_new_tokens=TOKENS, seed=seed), str(seed)) for seed in range(requests)]
    outcomes = serve(assemble(target, DRAFTERS, noted, verifier=verifier), asks, max_batch=8).values()
    texts = [(*TOY.prompt, *outcome.finished.tokens) for outcome in outcomes]
    return Played(texts, list(zip(noted.roots, noted.steps, strict=True)))


@pytest.mark.parametrize("verifier", [Rejection(), Block()], ids=lambda verifier: type(verifier).__name__)
@pytest.mark.parametrize("name", ROUTERS)
def test_the_law_is_the_target_s(name: str, verifier: Any) -> None:
    played = play(ROUTERS[name], verifier)
    assert {step.drafter for _, step in played.steps} >= {"near", "far"}, "everything is tried"
    assert min(p_value(pairs(played)), p_value(first_of_rounds(played))) > LEAST


@frozen
class Peeking(BaseRouter):
    """Draws with the noise that a drafter will draw with, and plays it only where it likes what comes."""

    def bind(self, resources: Resources) -> Any:
        return self

    def choose(self, state: Any, context: Context, drafters: Any) -> Choice:
        from draftmux.protocols import DraftRequest

        [draft] = drafters["near"].propose([DraftRequest(context, None, Budget(1, 1))])
        return Choice("near") if len(draft) and int(draft.tokens[0]) == 2 else Choice(None)


def test_a_router_that_looks_first_is_caught() -> None:
    assert p_value(first_of_rounds(play(Peeking(), Rejection()))) < LEAST
