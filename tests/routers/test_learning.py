"""Routers that learn: the text stays that of plain decoding, whatever they believe, and beliefs stay with a request."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
from attrs import define, evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.drafting import SequenceDrafter
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routers.bandit.policies import Pick, Tally, Ucb
from draftmux.routers.bandit.router import Arm, Bandit
from draftmux.routers.cost_aware.router import CostAware
from draftmux.routers.cost_aware.worth import worth_scoring
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Corrupt, Oracle, ahead
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Choice, Context, Draft

NAMES = ("oracle", "corrupt", "empty", "alternating", "random", "tree")
POLICIES = ("ucb", "exp3", "thompson", "full-information")
MEMORIES = ("request", "start", "process")
SIZE = 7


def bandit(policy: str, memory: str = "request", **more: Any) -> Bandit:
    arms = [Arm(drafter=None), *(Arm(drafter=name, budget=Budget(6, 4, 2)) for name in NAMES)]
    return Bandit(arms=arms, policy=policy, memory=memory, **more)


def cost_aware(memory: str = "request", **more: Any) -> CostAware:
    return CostAware(drafters=list(NAMES), memory=memory, budget=Budget(20, 6, 4), matches=[1, 2], **more)


ROUTERS = st.one_of(
    st.builds(bandit, st.sampled_from(POLICIES), st.sampled_from(MEMORIES), seed=some.SEEDS),
    st.builds(cost_aware, st.sampled_from(MEMORIES)),
)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), target=some.hash_targets(), router=ROUTERS, batch=st.sampled_from((1, 3)))
def test_the_text_is_that_of_plain_decoding(data: Any, target: Any, router: Any, batch: int) -> None:
    trial = Trial.prepare(target, data.draw(some.asks(target, count=3)))
    bound = router.bind(Resources(backend=target))
    trial.check(data.draw(some.drafter_sets(target.vocab_size)), bound, batch)


def course(router: Any, names: tuple[str, ...], batch: int, length: int = 40) -> dict[str, Any]:
    """What requests of these names did, with a good and a bad drafter."""
    target = scripted(hash_law(3, SIZE), SIZE)
    asks = [Ask((1, 2, number), Generation(max_new_tokens=length), name) for number, name in enumerate(names)]
    truths = Trial.prepare(target, asks).truths
    drafters = {"good": Oracle(truths, 4), "bad": Corrupt(truths, SIZE, 4, 0)}
    outcomes = serve(assemble(target, drafters, router.bind(Resources(backend=target))), asks, batch)
    return {name: outcome.finished.metrics for name, outcome in outcomes.items()}


LEARNERS = [
    *(Bandit(arms=[Arm(drafter="good"), Arm(drafter="bad")], policy=p, reward="length") for p in POLICIES),
    CostAware(drafters=["good", "bad"], budget=Budget(4, 4, 1)),
]


@pytest.mark.parametrize("router", LEARNERS, ids=lambda router: getattr(router, "policy", "cost-aware"))
def test_the_better_drafter_is_found(router: Any) -> None:
    metrics = course(router, ("one",), 1, 400)["one"]
    played = metrics.steps_by_drafter
    assert played["good"] > 2 * played["bad"], played


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("router", LEARNERS, ids=lambda router: getattr(router, "policy", "cost-aware"))
def test_what_one_request_learns_is_no_business_of_another(router: Any, batch: int) -> None:
    """The same requests alone, one after the other and together make the same choices."""
    names = ("a", "b", "c", "d")
    alone = {}
    for number, name in enumerate(names):
        others = [name if i == number else f"other-{i}" for i in range(len(names))]
        alone[name] = course(router, tuple(others), 1)[name].steps_by_drafter
    together = course(router, names, batch)
    assert {name: metrics.steps_by_drafter for name, metrics in together.items()} == alone


@pytest.mark.parametrize("memory", ["start", "process"])
def test_memory_shortens_the_search(memory: str) -> None:
    router = Bandit(
        arms=[Arm(drafter="bad"), Arm(drafter="good")], reward="length", memory=memory, policy="ucb", width=0
    )
    bound = router.bind(Resources(backend=scripted(hash_law(3, SIZE), SIZE)))
    assert bound.shared.tally.counts.sum() == 0
    first = course(evolve(router, memory="request"), ("a", "b", "c"), 1)
    later = course(router, ("a", "b", "c"), 1)
    bad = [sum(metrics.steps_by_drafter["bad"] for metrics in each.values()) for each in (first, later)]
    assert bad[1] < bad[0]


def test_costs_decide_between_drafts_that_are_accepted_alike() -> None:
    """Where rows are dear a draft must not be wide; where a pass over them costs what one row costs, it may be."""
    lengths = {}
    for name, slope in (("free", 0.0), ("dear", 0.9)):
        target = scripted(hash_law(3, SIZE), SIZE)
        target.costs = {nodes: 1.0 + slope * nodes for nodes in range(300)}
        ask = Ask((1, 2), Generation(max_new_tokens=60), "one")
        truths = Trial.prepare(target, [ask]).truths
        router = CostAware(drafters=["half"], budget=Budget(6, 6, 1)).bind(Resources(backend=target))
        drafters = {"half": Corrupt(truths, SIZE, 6, 1)}
        metrics = serve(assemble(target, drafters, router), [ask])["one"].finished.metrics
        lengths[name] = metrics.drafted / metrics.steps
    assert lengths["dear"] < 2 < lengths["free"]


def test_a_drafter_that_never_hits_is_left_alone() -> None:
    target = scripted(hash_law(3, SIZE), SIZE)
    target.costs = {nodes: 1.0 + 0.2 * nodes for nodes in range(300)}
    ask = Ask((1, 2), Generation(max_new_tokens=100), "one")
    truths = Trial.prepare(target, [ask]).truths
    router = CostAware(drafters=["bad"], budget=Budget(6, 6, 1)).bind(Resources(backend=target))
    metrics = serve(assemble(target, {"bad": Corrupt(truths, SIZE, 6, 0)}, router), [ask])["one"].finished.metrics
    assert metrics.steps == 100 and metrics.drafted < 25


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bandit(arms=[Arm(drafter="a")]), "two to eight"),
        (lambda: Bandit(arms=[Arm(drafter="a"), Arm(drafter="a")]), "twice"),
        (lambda: Bandit(arms=[Arm(), Arm(budget=Budget(7))]), "twice"),
        (lambda: CostAware(drafters=["a"], budget=Budget(6, 6, 0)), "max_branches"),
        (lambda: CostAware(drafters=["a"], matches=[1, 10**9]), "from 1 to 128"),
        (lambda: CostAware(drafters=[]), "at least one"),
        (lambda: CostAware(drafters=["a", "a"]), "only once"),
        (lambda: CostAware(drafters=["a"], budget=Budget()), "'budget'"),
        (lambda: CostAware(drafters=["a"], matches=[]), "'matches'"),
    ],
)
def test_options_that_make_no_sense(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@frozen
class Sure(SequenceDrafter):
    """One token, right at even places and wrong at odd ones, with a confidence of its own for each."""

    truths: list[tuple[int, ...]]
    right: float
    wrong: float

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        odd = len(context.tokens) % 2
        tokens = [(token + odd) % SIZE for token in ahead(self.truths, context, 1)]
        return Draft(tokens, [-1] * len(tokens), confidence=[self.wrong if odd else self.right] * len(tokens))


@pytest.mark.parametrize(("right", "wrong"), [(0.9, 0.1), (0.1, 0.9)])
def test_only_nodes_that_pay_are_scored(right: float, wrong: float) -> None:
    """What the drafter is sure of, or unsure of, should that be what holds."""
    target = scripted(hash_law(3, SIZE), SIZE)
    target.costs = {nodes: 1.0 + 0.2 * nodes for nodes in range(300)}
    ask = Ask((1, 2), Generation(max_new_tokens=80), "one")
    truths = Trial.prepare(target, [ask]).truths
    router = CostAware(drafters=["sure"], budget=Budget(4, 2, 2)).bind(Resources(backend=target))
    metrics = serve(assemble(target, {"sure": Sure(truths, right, wrong)}, router), [ask])["one"].finished.metrics
    assert metrics.asked_by_drafter["sure"] >= 30
    assert 15 < metrics.accepted <= metrics.drafted < 1.5 * metrics.accepted


def test_the_rate_of_all_steps_decides_not_that_of_one() -> None:
    """Half of the places offer (2 tokens, 1 s) or (8, 4.2 s), the others (1, 1 s). The better ratio gives 1.5 tokens a
    second, the rate rule 1.73: it takes 8 tokens wherever they are to be had."""
    rate = 1.0
    for _ in range(50):  # the rate that the choices bring, and the choices that the rate asks for
        long = 8 - rate * 4.2 > 2 - rate * 1.0
        tokens, seconds = (8 + 1, 4.2 + 1) if long else (2 + 1, 2)
        rate = tokens / seconds
    assert long and rate == pytest.approx(9 / 5.2)
    assert worth_scoring(np.ones(7), rate * np.array([1.0, 1.0, 9, 9, 9, 9, 9, 4.2])) == list(range(7))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bandit_reports_plays_and_regret(policy: str) -> None:
    router = Bandit(arms=[Arm(drafter="good"), Arm(drafter="bad", budget=Budget(2))], policy=policy)
    metrics = course(router, ("one",), 1, 120)["one"]
    told = metrics.router
    assert told["plays of good"] + told["plays of bad (2 nodes)"] == metrics.steps - 1  # the last is never rated
    assert 0 <= told["regret, seconds"] < told["seconds"]
    both = metrics + metrics
    assert both.router["plays of good"] == 2 * told["plays of good"]
    assert metrics.as_dict()["router"] == dict(told)


def test_a_report_that_fails_is_counted_and_loses_nothing() -> None:
    class Mute(CostAware):
        def bind(self, resources: Resources) -> Any:
            return self

        def choose(self, state: Any, context: Context, drafters: Any) -> Choice:
            return Choice(None)

        def report(self, state: Any) -> Any:
            return {"plays": "many"}

    metrics = course(Mute(drafters=["good"]), ("one",), 1)["one"]
    assert any(fault.startswith("router: ValueError") for fault in metrics.faults) and not metrics.router


@define
class Slow(SequenceDrafter):
    """Takes its time, and never has a draft."""

    asked: int = 0

    def propose_one(self, context: Any, state: Any, budget: Budget) -> Draft:
        self.asked += 1
        time.sleep(0.002)
        return Draft.empty()


@pytest.mark.parametrize(
    "router",
    [
        CostAware(drafters=["slow"], budget=Budget(6, 6, 1)),
        Bandit(arms=[Arm(drafter="slow"), Arm()], policy="ucb", width=0),
    ],
)
def test_time_for_nothing_counts(router: Any) -> None:
    target, slow = scripted(hash_law(3, SIZE), SIZE), Slow()
    target.costs = dict.fromkeys(range(300), 0.001)
    parts = assemble(target, {"slow": slow}, router.bind(Resources(backend=target)))
    serve(parts, [Ask((1, 2), Generation(max_new_tokens=100, ignore_eos=True), "one")])
    assert slow.asked < 30


@pytest.mark.parametrize("policy", ["ucb", "full-information"])
def test_an_arm_that_was_forgotten_is_played_again(policy: str) -> None:
    options = Bandit(arms=[Arm(drafter="bad"), Arm(drafter="good")], policy=policy, reward="length", memory="start")
    shared = options.policy_for()
    shared.learn(Pick(0), 1.0)
    for _ in range(80):
        shared.learn(Pick(1), 2.0)
    fresh = options.policy_for()
    fresh.start_from(shared, 5.0)
    assert fresh.tally.counts.tolist() == [0.0, 5.0] and fresh.pick().arm == 0


def test_bounds_of_arms_without_plays() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(Ucb(Tally(2, 1.0), 0, np.random.default_rng(0)).bounds()).any()
