"""Rules of acceptance that look right and bend the law: each is caught by the check that the right rules pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen

from draftmux.generation import Generation
from draftmux.noise import Stream
from draftmux.testing.laws import Bias, check_biased, distance
from draftmux.testing.sampled import Likeliest, SampledDrafter, SampledTree
from draftmux.testing.toys import random_toy, trapping_toy
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Draft
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.residual import excess, normalised
from draftmux.verifiers.traversal import Traversal
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.protocols import Verifier
    from draftmux.sampling import Sampler
    from draftmux.types import Context, Scores

TOY, OTHER, TRAP = random_toy(18), random_toy(10), trapping_toy(40)
CHAIN, LONG, SIBLINGS = SampledTree(TOY.q, (1, 1)), SampledTree(TOY.q, (1, 1, 1)), SampledTree(TOY.q, (3,))
DISTINCT = SampledTree(TOY.q, (3,), replace=False)
POINTS, BRANCHES = Likeliest(TOY.q, (2, 2)), SampledTree(TOY.q, (2, 1))


@frozen
class Through:
    """A sampler that is a little wrong."""

    inner: Any
    key: Callable[[int], int] = lambda key: key

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def bernoulli(self, probability: float, key: int) -> bool:
        return bool(self.inner.bernoulli(probability, self.key(key)))

    def draw(self, law: Tensor, key: int = ROOT) -> int:
        return int(self.inner.draw(law, self.key(key)))


class KeyedByPosition(Through):
    """As if no two rounds ever tested the same position."""

    def bernoulli(self, probability: float, key: int) -> bool:
        return bool(self.inner.chances.below((Stream.ACCEPT, self.inner.position(key)), probability))


class FrozenAtTheRoot(Through):
    def p(self, node: int) -> Tensor:
        row, prefix = self.inner.scores.logits[node + 1][None], self.inner._prefix(ROOT)
        for processor in self.inner.rule.processors:
            row = processor(prefix, row)
        law: Tensor = row[0].softmax(-1)
        return law


@frozen
class With(BaseVerifier):
    """`inner`, shown a sampler that is a little wrong."""

    inner: Verifier
    sampler: Callable[[Any, Draft], Any]

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        return self.inner.accept(context, draft, scores, self.sampler(sampler, draft))


@frozen
class Redone(BaseVerifier):
    """`inner` again with fresh numbers where the first outcome does not please."""

    inner: Verifier
    displeases: Callable[[Acceptance, Sampler], bool]

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        first = self.inner.accept(context, draft, scores, sampler)
        again: Any = Through(sampler, lambda key: key + 100)
        return self.inner.accept(context, draft, scores, again) if self.displeases(first, sampler) else first


class EachBranchOnItsOwn(BaseVerifier):
    """The target samples along every branch; the longest agreement wins."""

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        leaves = [node for node in range(len(draft)) if node not in draft.siblings]
        return max((self._walk(leaf, draft, sampler) for leaf in leaves), key=lambda one: len(one.path))

    def _walk(self, leaf: int, draft: Draft, sampler: Sampler) -> Acceptance:
        nodes = draft.path_to(leaf)
        for depth, (node, parent) in enumerate(zip(nodes, [ROOT, *nodes], strict=False)):
            token = sampler.draw(sampler.p(parent), 10 * leaf + depth)
            if token != draft.tokens[node]:
                return Acceptance(tuple(nodes[:depth]), token)
        return Acceptance(tuple(nodes), sampler.draw(sampler.p(leaf), 10 * leaf + 9))


class DrawsFromP(Rejection):
    def _child(self, parent: int, draft: Draft, sampler: Sampler) -> tuple[int | None, Tensor]:
        return super()._child(parent, draft, sampler)[0], sampler.p(parent)


class SkipsTwins(Rejection):
    def _child(self, parent: int, draft: Draft, sampler: Sampler) -> tuple[int | None, Tensor]:
        law = sampler.p(parent)
        for node in draft.siblings.get(parent, ()):
            token = int(draft.tokens[node])
            if draft.children[parent, token] != node:
                continue
            if sampler.bernoulli(float(law[token] / sampler.q(node)[token]), node):
                return node, law
            law = normalised(excess(law, sampler.q(node)), otherwise=law)
        return None, law


class NeverNormalises(Rejection):
    def _child(self, parent: int, draft: Draft, sampler: Sampler) -> tuple[int | None, Tensor]:
        law = sampler.p(parent)
        for node in draft.siblings.get(parent, ()):
            token = int(draft.tokens[node])
            if sampler.bernoulli(float(law[token] / sampler.q(node)[token]), node):
                return node, law
            law = excess(law, sampler.q(node))
        return None, law


class EitherOfTwoSamples(BaseVerifier):
    """Accepts what one of two samples of the target equals."""

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        for node, token in enumerate(draft.tokens.tolist()):
            samples = [sampler.draw(sampler.p(node - 1), 2 * node + which) for which in range(2)]
            if token not in samples:
                return Acceptance(tuple(range(node)), samples[0])
        return Acceptance(tuple(range(len(draft))), sampler.draw(sampler.p(len(draft) - 1)))


class Typical(BaseVerifier):
    """Accepts whatever is not too surprising."""

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        node = ROOT
        for token in draft.tokens.tolist():
            p = sampler.p(node)
            if p[token] <= min(0.09, 0.3 * math.exp(float((p * p.clamp_min(1e-9).log()).sum()))):
                break
            node += 1
        return Acceptance(tuple(range(node + 1)), sampler.draw(sampler.p(node)))


class FirstFailure(Block):
    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        weights, node = self._weights(draft, sampler), ROOT
        while node + 1 < len(draft):
            if not sampler.bernoulli(self._chance(node + 1, weights[node + 1], draft, sampler), node + 1):
                law = excess(sampler.p(node), sampler.q(node + 1), weights[node] if node != ROOT else 1.0)
                return Acceptance(tuple(range(node + 1)), sampler.draw(normalised(law, otherwise=sampler.p(node))))
            node += 1
        return Acceptance(tuple(range(node + 1)), sampler.draw(sampler.p(node)))


class ResidualWithoutWeight(Block):
    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        path = super().accept(context, draft, scores, Through(sampler, lambda key: key if key >= 0 else 99)).path  # type: ignore[arg-type]
        law = sampler.p(len(path) - 1)
        left = excess(law, sampler.q(len(path))) if len(path) < len(draft) else law
        return Acceptance(path, sampler.draw(normalised(left, otherwise=law)))


class WeightLeftAlone(Traversal):
    def _refuse(self, node: int, parent: Any, sampler: Sampler) -> None:
        weight = parent.weight
        super()._refuse(node, parent, sampler)
        parent.weight = weight


def nothing_accepted(acceptance: Acceptance, sampler: Sampler) -> bool:
    return not acceptance.path


def dead_end(acceptance: Acceptance, sampler: Sampler) -> bool:
    return any(node in sampler.dead_ends for node in acceptance.path)


def bent(at_least: float, wrong: Verifier, right: Verifier, drafter: SampledDrafter, **more: Any) -> Bias:
    return Bias(at_least, more.pop("toy", TOY), (wrong, drafter), (right, drafter), **more)


def one_key(sampler: Any, draft: Draft) -> Any:
    return Through(sampler, lambda key: 0)


def key_of_the_parent(sampler: Any, draft: Draft) -> Any:
    return Through(sampler, lambda key: int(draft.parents[key]) if key >= 0 else key)


def keyed_by_position(sampler: Any, draft: Draft) -> Any:
    return KeyedByPosition(sampler)


def frozen_at_the_root(sampler: Any, draft: Draft) -> Any:
    return FrozenAtTheRoot(sampler)


PENALTY = Generation(temperature=1.0, frequency_penalty=1.5, presence_penalty=1.0)
BANS = Generation(temperature=1.0, bad_word_ids=[[2, 0]])
BIASES = {
    "each branch is sampled on its own, the longest wins": bent(0.2, EachBranchOnItsOwn(), ExactMatch(), POINTS),
    "rejected, then drawn from p": bent(0.11, DrawsFromP(), Rejection(), CHAIN),
    "one number for all siblings": bent(
        0.02, With(Rejection(), key_of_the_parent), Rejection(), SampledTree(OTHER.q, (3,)), toy=OTHER
    ),
    "one number for all distinct siblings": bent(0.08, With(Rejection(), key_of_the_parent), Rejection(), DISTINCT),
    "twins are passed over": bent(0.028, SkipsTwins(), Rejection(), SIBLINGS),
    "the residual is not normalised between siblings": bent(0.06, NeverNormalises(), Rejection(), SIBLINGS),
    "either of two samples will do": bent(0.12, EitherOfTwoSamples(), ExactMatch(), LONG),
    "typical acceptance": bent(0.79, Typical(), ExactMatch(), Likeliest(TOY.q, (1, 1))),
    "redone when nothing was accepted": bent(0.14, Redone(Rejection(), nothing_accepted), Rejection(), CHAIN),
    "processors frozen at the root": bent(
        0.4, With(Rejection(), frozen_at_the_root), Rejection(), CHAIN, generation=PENALTY
    ),
    "block stops at the first failure": bent(0.33, FirstFailure(), Block(), LONG),
    "block's residual without the weight": bent(0.006, ResidualWithoutWeight(), Block(), LONG),
    "traversal leaves the parent's weight alone": bent(0.12, WeightLeftAlone(), Traversal(), BRANCHES),
    "rejection tests every node with one number": bent(0.09, With(Rejection(), one_key), Rejection(), CHAIN),
    "block tests every node with one number": bent(0.05, With(Block(), one_key), Block(), LONG),
    "traversal tests every node with one number": bent(0.05, With(Traversal(), one_key), Traversal(), BRANCHES),
    "block tests by position, two rounds": bent(0.01, With(Block(), keyed_by_position), Block(), CHAIN, rounds=2),
    "redone when the way leads into a dead end": bent(
        0.05, Redone(Rejection(), dead_end), Rejection(), SampledTree(TRAP.q, (1, 1)), toy=TRAP, generation=BANS
    ),
}


@pytest.mark.parametrize("name", BIASES)
def test_the_bias_is_caught(name: str) -> None:
    check_biased(BIASES[name])


def test_a_last_residual_need_not_be_normalised() -> None:
    """The draw normalises; only a ratio against what is left has to be of laws."""
    assert distance(NeverNormalises(), LONG, TOY) < 1e-9


def test_a_position_is_tested_once_a_round_so_one_round_shows_nothing() -> None:
    assert distance(With(Block(), keyed_by_position), CHAIN, TOY) < 1e-9
