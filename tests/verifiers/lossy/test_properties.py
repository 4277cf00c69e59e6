"""What holds of the lossy rules through the whole engine, for any draft, router, request and batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.arrays import frozen_view
from draftmux.generation import Generation
from draftmux.sampling import RuleContext, SamplingRule
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Corrupt
from draftmux.testing.harness import Outcome, Trial, assemble, check_outcome, open_sequences, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import MODELS, hash_law, model_law, scripted, tiny_target
from draftmux.types import Context, Draft, Scores
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.lossy.aasd import Aasd
from draftmux.verifiers.lossy.fly import Fly
from draftmux.verifiers.lossy.typical import Typical

SHARE = st.sampled_from((0.0, 0.05, 0.3, 0.9))
TYPICAL = st.builds(Typical, epsilon=SHARE, delta=st.sampled_from((0.0, 0.3, 1.0)))
FLY = st.builds(
    Fly,
    entropy_threshold=st.sampled_from((0.0, 0.3, 0.8)),
    window_following=st.sampled_from((0, 1, 2)),
    top=st.sampled_from((1, 3, 99)),
)
AASD = st.builds(Aasd, alpha=st.sampled_from((0.0, 0.1, 9.0)), beta=SHARE, floor=SHARE)
LOSSY = st.one_of(TYPICAL, FLY, AASD)
NEVER = st.one_of(
    st.builds(Fly, entropy_threshold=st.sampled_from((1.1, math.inf)), window_following=st.just(0)),
    st.builds(Fly, entropy_threshold=st.just(0.0), window_following=st.just(20)),  # no draft here is that deep
)
Step = tuple[Draft, Any, Any, Any]


@st.composite
def steps(draw: st.DrawFn, **fixed: Any) -> Step:
    """A scored draft of a random tree, and the sampler of any request."""
    size = draw(st.integers(2, 8))
    generation = draw(some.generations(size, **fixed))
    draft = draw(some.draft_trees(size))
    rng = np.random.default_rng(draw(some.SEEDS))
    prompt = frozen_view(rng.integers(0, size, 3))
    scores = Scores(torch.from_numpy(rng.normal(0, draw(st.sampled_from((0.5, 2.0, 8.0))), (len(draft) + 1, size))))
    context = Context("request", prompt, 2, 99, {}, (), generation)
    rule = SamplingRule.build(generation, RuleContext(size, 2, frozenset()))
    return draft, context, scores, rule.at(context, draft, scores)


def judged(verifier: Any, step: Step) -> tuple[int, ...]:
    """The path, cut where nothing can follow as the engine does."""
    draft, context, scores, sampler = step
    path = verifier.accept(context, draft, scores, sampler).path
    dead = [place for place, node in enumerate((-1, *path)) if node in sampler.dead_ends]
    return path[: dead[0]] if dead else path


# One step.


@settings(max_examples=80)
@given(step=steps(temperature=0.0), verifier=TYPICAL)
def test_typical_is_exact_match_at_temperature_0(step: Step, verifier: Any) -> None:
    assert judged(verifier, step) == judged(ExactMatch(), step)


@settings(max_examples=80)
@given(step=steps(), verifier=FLY)
def test_fly_never_accepts_less_than_exact_match(step: Step, verifier: Any) -> None:
    assert len(judged(verifier, step)) >= len(judged(ExactMatch(), step))


@settings(max_examples=80)
@given(step=steps(temperature=0.0), verifier=AASD)
def test_aasd_never_accepts_less_than_exact_match_at_temperature_0(step: Step, verifier: Any) -> None:
    assert len(judged(verifier, step)) >= len(judged(ExactMatch(), step))


@settings(max_examples=80)
@given(step=steps(temperature=0.0))
def test_aasd_is_exact_match_when_only_the_likeliest_token_stands(step: Step) -> None:
    assert judged(Aasd(floor=1.0), step) == judged(ExactMatch(), step)


@settings(max_examples=80)
@given(step=steps(), verifier=NEVER)
def test_fly_is_exact_match_where_no_mismatch_can_pass(step: Step, verifier: Any) -> None:
    assert judged(verifier, step) == judged(ExactMatch(), step)


@settings(max_examples=150)
@given(step=steps(), verifier=LOSSY)
def test_tokens_that_are_ruled_out_never_stand(step: Step, verifier: Any) -> None:
    draft, sampler = step[0], step[3]
    for node in judged(verifier, step):
        assert sampler.logits(int(draft.parents[node]))[int(draft.tokens[node])] > -math.inf


# The whole engine.


def tokens_of(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    return {name: outcome.result and outcome.result.tokens for name, outcome in outcomes.items()}


@settings(max_examples=30)
@given(data=st.data(), target=some.hash_targets(), batch=st.sampled_from((1, 3)))
def test_exact_settings_give_the_targets_own_text(data: st.DataObject, target: Any, batch: int) -> None:
    greedy = data.draw(st.booleans())
    settings_of = some.generations(target.vocab_size, 16, target.eos_ids, **({"temperature": 0.0} if greedy else {}))
    asks = [Ask(data.draw(some.prompts(target.vocab_size)), data.draw(settings_of), f"r{i}") for i in range(batch)]
    verifier = data.draw(st.one_of(NEVER, TYPICAL) if greedy else NEVER)
    trial = Trial.prepare(target, asks)
    drafters = data.draw(some.drafter_sets(target.vocab_size))(trial.truths)
    parts = assemble(target, drafters, data.draw(some.routers()), verifier=verifier)
    for name, outcome in serve(parts, asks, batch).items():
        check_outcome(outcome, trial.expected[name])
    assert open_sequences(target) == 0


@settings(max_examples=30)
@given(data=st.data(), target=some.hash_targets(), verifier=LOSSY)
def test_a_request_in_a_batch_is_as_alone(data: st.DataObject, target: Any, verifier: Any) -> None:
    asks = data.draw(some.asks(target, count=3))
    drafters = data.draw(some.drafter_sets(target.vocab_size))(Trial.prepare(target, asks).truths)
    parts = assemble(target, drafters, data.draw(some.routers()), verifier=verifier)
    together = tokens_of(serve(parts, asks, max_batch=3))
    alone = {name: tokens for ask in asks for name, tokens in tokens_of(serve(parts, [ask])).items()}
    assert together == alone
    assert open_sequences(target) == 0


@settings(max_examples=40)
@given(data=st.data(), target=some.hash_targets(), verifier=LOSSY)
def test_every_token_is_one_that_plain_decoding_allows(data: st.DataObject, target: Any, verifier: Any) -> None:
    [ask] = data.draw(some.asks(target))
    drafters = data.draw(some.drafter_sets(target.vocab_size))(Trial.prepare(target, [ask]).truths)
    outcome = serve(assemble(target, drafters, verifier=verifier), [ask])["request-0"]
    prefix = list(ask.tokens)
    for piece in outcome.pieces:
        assert allowed(target, ask, prefix)[piece.token] > 0
        prefix.append(piece.token)


def allowed(target: Any, ask: Ask, prefix: Sequence[int]) -> Any:
    """The law after a committed prefix: softmax of the processed logits, without a draft."""
    tokens = frozen_view(np.array(prefix))
    context = Context("request", tokens, len(ask.tokens), 1, {}, (), ask.generation)
    rule = SamplingRule.build(ask.generation, RuleContext(target.vocab_size, len(ask.tokens), target.eos_ids))
    scores = Scores(torch.tensor([target.law(tuple(prefix))], dtype=torch.float64))
    return rule.at(context, Draft.empty(), scores).logits(-1).softmax(-1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("verifier", [Typical(), Fly(window_following=99)], ids=["typical", "fly"])
def test_real_models_at_temperature_0(name: str, verifier: Any) -> None:
    target = tiny_target(name)
    trial = Trial.prepare(target, [Ask((1, 2, 3), Generation(max_new_tokens=12))], model_law(name))
    parts = assemble(target, {"wrong": Corrupt(trial.truths, 40, k=4, at=2)}, verifier=verifier)
    check_outcome(serve(parts, trial.asks)["request"], trial.expected["request"])


# Lossy they are.


def by_position(prefix: tuple[int, ...]) -> Sequence[float]:
    """A law that forgets what was written, so that a text goes on as before after a wrong token. Rather flat."""
    return [logit / 4 for logit in hash_law(3, 6)((len(prefix),))]


@pytest.mark.parametrize(
    ("verifier", "temperature"), [(Typical(), 1.0), (Fly(), 0.0), (Fly(), 1.0), (Aasd(), 0.0), (Aasd(), 1.0)]
)
def test_a_wrong_token_can_stand(verifier: Any, temperature: float) -> None:
    stood = 0
    for seed in range(5):
        ask = Ask((1, 2), Generation(max_new_tokens=20, temperature=temperature, seed=seed))
        trial = Trial.prepare(scripted(by_position, 6), [ask])
        drafter = Corrupt(trial.truths, 6, k=8, at=0)
        found = serve(assemble(trial.target, {"wrong": drafter}, verifier=verifier), [ask])["request"].finished
        stood += found.tokens[0] == (trial.expected["request"].tokens[0] + 1) % 6
    assert stood


def test_the_law_is_not_the_targets() -> None:
    """A drafted token of probability 1/4 always stands: a total variation of 3/4."""
    target = scripted(lambda prefix: [0.0] * 4, 4)
    zeros = Corrupt([[0] * 30], 4, k=8, at=8)
    verifiers = {"typical": Typical(), "fly": Fly(window_following=0), "aasd": Aasd(), "exact": ExactMatch()}
    first: dict[str, set[int]] = {name: set() for name in verifiers}
    for name, verifier in verifiers.items():
        for seed in range(40):
            ask = Ask((0,), Generation(max_new_tokens=10, temperature=1.0, seed=seed))
            outcome = serve(assemble(target, {"zeros": zeros}, verifier=verifier), [ask])["request"]
            first[name].add(outcome.finished.tokens[0])
    assert first == {"typical": {0}, "fly": {0}, "aasd": {0}, "exact": {0, 1, 2, 3}}
