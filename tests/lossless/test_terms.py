"""What plugins hand over is held to the terms: the verifier's, the constraint's, the router's, the law's."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from attrs import frozen

from draftmux.drafting import SequenceDrafter
from draftmux.errors import RequestError
from draftmux.generation import Generation
from draftmux.routing import BaseRouter
from draftmux.testing.constraints import Automaton
from draftmux.testing.drafters import RandomTree, TreeOracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.properties import check_skip
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted
from draftmux.testing.texts import END, byte_tokenizer
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts, Choice, Draft, Emits
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifying import BaseVerifier

SIZE = 6


@frozen
class WithQ(SequenceDrafter):
    """A chain of token 1 with a given row as its law."""

    emits: ClassVar[Emits] = Emits(q=True)
    row: Any

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([1], self.row)


def greedy(**settings: Any) -> Trial:
    asks = [Ask((1, 2), Generation(max_new_tokens=6, **settings), f"r{n}") for n in range(2)]
    return Trial.prepare(scripted(hash_law(2, SIZE), SIZE, eos_ids=(0,)), asks)


HALF = torch.full((1, SIZE), 1 / SIZE, dtype=torch.float32)
HALF[0, 1] = 1 / SIZE
ROWS = {
    "bfloat16": HALF.to(torch.bfloat16),
    "numpy": HALF.numpy(),
    "short of one": HALF * 0.9999,
    "impossible": torch.eye(SIZE)[2:3],
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_law_that_is_not_the_draws_is_the_drafters_fault(row: Any) -> None:
    trial = greedy()
    outcomes = check_skip(trial, assemble(trial.target, {"d": WithQ(row)}, policy="skip"), "drafter 'd'")
    assert all(" q " in fault for outcome in outcomes.values() for fault in outcome.finished.metrics.faults)


def test_q_is_the_engines_own_copy() -> None:
    buffer = HALF.clone().requires_grad_()
    draft = Draft.chain([1], buffer)
    with torch.no_grad():
        buffer.zero_()
    assert draft.q is not None and not draft.q.requires_grad and float(draft.q.sum()) == pytest.approx(1)


def test_a_tree_before_a_verifier_of_chains_is_the_drafters_fault() -> None:
    trial = greedy()
    parts = assemble(trial.target, {"tree": RandomTree(SIZE)}, verifier=Block(), policy="skip")
    check_skip(trial, parts, "drafter 'tree'")


class NeedsQ(Block):
    accepts: ClassVar[Accepts] = Accepts(tree=False, needs_q=True)


def test_a_draft_without_q_before_a_verifier_that_needs_it_is_the_drafters_fault() -> None:
    trial = greedy()
    oracle = TreeOracle(trial.truths, SIZE, distractors=0)
    check_skip(trial, assemble(trial.target, {"d": oracle}, verifier=NeedsQ(), policy="skip"), "drafter 'd'")


class Shifty(Choice):
    """Names another drafter whenever it is asked again."""

    @property
    def candidates(self) -> tuple[str, ...]:
        seen = self.__dict__.setdefault("seen", [])
        seen.append(1)
        return ("tree",) if len(seen) == 1 else ("nobody",)


class ShiftyRouter(BaseRouter):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Shifty("tree")


def test_a_choice_is_read_once() -> None:
    trial = greedy()
    outcomes = serve(assemble(trial.target, {"tree": RandomTree(SIZE)}, ShiftyRouter()), trial.asks)
    assert all(outcome.result is not None for outcome in outcomes.values())


@frozen
class RawBest(BaseVerifier):
    """Reads the logits past its sampler."""

    lossless: ClassVar[bool] = True

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), int(scores.logits[ROOT + 1].argmax()))


def test_a_verifier_that_leaves_the_constraint_is_at_fault_and_the_text_stays_within_it() -> None:
    trial = greedy(constraint=Automaton(3, share=0.3))
    parts = assemble(trial.target, {"tree": RandomTree(SIZE)}, verifier=RawBest(), policy="skip")
    check_skip(trial, parts, "verifier")


def test_nobody_observes_a_step_that_failed() -> None:
    told: list[Any] = []

    class Telling(RandomTree):
        def observe(self, state: Any, step: Any) -> None:
            told.append(step.committed)

    ban = Generation(max_new_tokens=9, bad_word_ids=[[token] for token in range(SIZE)])
    outcomes = serve(assemble(scripted(hash_law(2, SIZE), SIZE), {"d": Telling(SIZE)}), [Ask((1,), ban)])
    assert outcomes["request"].error is not None and told == []


class Failing(WithQ):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        raise RuntimeError("drawn, and gone")


@pytest.mark.parametrize(("verifier", "ends"), [(Rejection(), True), (ExactMatch(), False)])
def test_a_sampled_draft_that_fails_ends_the_request_where_dropping_it_would_bias(verifier: Any, ends: bool) -> None:
    trial = greedy(temperature=1.0)
    parts = assemble(trial.target, {"q": Failing(HALF)}, verifier=verifier, policy="skip")
    for outcome in serve(parts, trial.asks).values():
        assert (outcome.error is not None) is ends


def test_a_special_token_as_stop_text_is_refused_with_its_id() -> None:
    tokenizer = byte_tokenizer()
    size = len(tokenizer)
    target = scripted(hash_law(1, size), size, eos_ids=(tokenizer.eos_token_id,), tokenizer=tokenizer)
    with pytest.raises(RequestError, match=rf"stop_ids: \[{tokenizer.eos_token_id}\]"):
        serve(assemble(target), [Ask((1,), Generation(stop=[END]))])
