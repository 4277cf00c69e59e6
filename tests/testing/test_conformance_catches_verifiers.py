"""Planted bad verifiers, one for each check of the kit: proof that the check can fail."""

from __future__ import annotations

import itertools
import pickle
import random
from typing import Any, ClassVar

import pytest
import torch
from attrs import field, frozen

from draftmux.testing import ConformanceError, check_verifier
from draftmux.testing.conformance.kit import VERIFIER
from draftmux.testing.laws import NEAR, distance
from draftmux.testing.sampled import SampledTree
from draftmux.testing.toys import TOYS
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifying import BaseVerifier

SIZE = 6


class Plain(BaseVerifier):
    """Accepts nothing: right, and of no use. The bad ones below break one rule each."""

    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = True

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), sampler.pick(ROOT))


class NoAccepts:
    lossless = True
    pathwise = True

    def bind(self, resources: Any) -> Any:
        return self


class PathwiseButLossy(Plain):
    lossless: ClassVar[bool] = False


class SkipsANode(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((len(draft) - 1,) if len(draft) else (), sampler.pick(ROOT))


class ChainsOnly(Plain):
    """Says that it accepts trees."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        assert draft.parents.tolist() == list(range(-1, len(draft) - 1)), "chains only, please"
        return Acceptance((), sampler.pick(ROOT))


class NeedsQ(Plain):
    """Does not say that it does."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), sampler.pick(ROOT) if not len(draft) else sampler.pick(int(draft.q[0, 0] * 0) - 1))


class BelievesTheDraft(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        path = (0,) if len(draft) else ()
        return Acceptance(path, sampler.pick(path[-1] if path else ROOT))


class WrongTokenAfterAll(Plain):
    """The bonus token of the root, however far the draft was right."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        right = ExactMatch().accept(context, draft, scores, sampler)
        return Acceptance(right.path, sampler.pick(ROOT))


class PathwiseRejection(Rejection):
    """Right in law; another text for the same seed."""

    pathwise: ClassVar[bool] = True


class DrawsFromP(Rejection):
    """After a rejection the token is drawn from the whole law, not from what the draft left of it."""

    def _child(self, parent: Any, draft: Any, sampler: Any) -> Any:
        node, law = super()._child(parent, draft, sampler)
        return node, law if node is not None else sampler.p(parent)


class Instead:
    """A sampler with some of its answers replaced."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class ReadsRawLogits(Rejection):
    """Sampled, p is the softmax of the target's logits: no temperature, no warpers, no penalties, no bans."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        raw = Instead(sampler)
        if not context.generation.greedy:
            raw.p = lambda node: scores.logits[node + 1].softmax(-1)
        return super().accept(context, draft, scores, raw)


class WarpsByItself(Rejection):
    """Applies temperature and bans, and forgets the rest."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        raw = Instead(sampler)
        if not context.generation.greedy:
            raw.p = lambda node: (
                (scores.logits[node + 1] / context.generation.temperature)
                .where(sampler.logits(node).isfinite(), -torch.inf)
                .softmax(-1)
            )
        return super().accept(context, draft, scores, raw)


class MasksOnlyTheRoot(Rejection):
    """Under a constraint every node is given what the constraint lets follow the root."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        frozen_mask = Instead(sampler)
        if sampler.constrained is not None:
            mask = torch.tensor(sampler.constrained.allowed(ROOT, scores.logits.shape[-1]))
            frozen_mask.p = lambda node: sampler.p(node) * mask if (sampler.p(node) * mask).any() else sampler.p(node)
        return super().accept(context, draft, scores, frozen_mask)


class DecidesWithPicks(Block):
    """Right for one round: its decisions are made with the numbers of the target's own picks, those of later positions
    first. The next round meets numbers again that this one has looked at."""

    accepts: ClassVar[Accepts] = Accepts(tree=False, needs_q=True)

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        def below(probability: float, node: int) -> bool:
            law = sampler.p(node - 1)
            token = int(law.argmax())
            share, hit = float(law[token]), sampler.pick(node - 1) == token
            if probability <= share:
                return hit and sampler.bernoulli(probability / share, node)
            return hit or sampler.bernoulli((probability - share) / (1 - share), node)

        picking = Instead(sampler)
        if not context.generation.greedy:
            picking.bernoulli = below
        return super().accept(context, draft, scores, picking)


class TakesNothingForOne(Block):
    """`min(1, p / q)` of a p of 0 and a q that underflowed is 1 in Python."""

    def _weights(self, draft: Any, sampler: Any) -> list[float]:
        weights = [1.0]
        for node, token in enumerate(draft.tokens.tolist()):
            weights.append(min(1.0, weights[-1] * float(sampler.p(node - 1)[token] / sampler.q(node)[token])))
        return weights[1:]


class DividesByNothing(Rejection):
    """What q leaves of p, by way of their ratio, which is none where q is 0."""

    def _child(self, parent: Any, draft: Any, sampler: Any) -> Any:
        node, law = super()._child(parent, draft, sampler)
        if node is not None or not draft.siblings.get(parent):
            return node, law
        p, q = sampler.p(parent), sampler.q(draft.siblings[parent][0])
        return None, (p / q - 1).clamp_min(0) * q


class DrawsFromPLater(Rejection):
    """Right on the first 30 tokens."""

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        rule = DrawsFromP() if len(context.tokens) > 30 else Rejection()
        return rule.accept(context, draft, scores, sampler)


class Modest(ExactMatch):
    lossless: ClassVar[bool] = False
    pathwise: ClassVar[bool] = False


class ThrowsDice(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), random.randrange(SIZE))


@frozen
class CountsCalls(Plain):
    calls: Any = field(factory=itertools.count)

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), next(self.calls) % SIZE)


class OneKeyForAll(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        kept = [node for node in range(len(draft)) if sampler.bernoulli(0.5, 0)]
        return Acceptance((), sampler.pick(ROOT if kept else -1))


class LooksBehindTheDraft(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        return Acceptance((), sampler.pick(-2) if len(draft) else sampler.pick(ROOT))


class Overwrites(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        token = sampler.pick(ROOT)
        scores.logits[0] = 0
        return Acceptance((), token)


class Luggage:
    """Something to unpickle."""


class Unpickles(Plain):
    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        pickle.loads(pickle.dumps(Luggage()))
        return Acceptance((), sampler.pick(ROOT))


def named(value: Any) -> str:
    return "" if isinstance(value, str) else type(value).__name__


BAD_VERIFIERS: list[tuple[str, Any, str]] = [
    ("protocol", NoAccepts(), "lacks accepts, accept"),
    ("declarations", PathwiseButLossy(), "pathwise without lossless"),
    ("legal-paths", SkipsANode(), "does not continue the path"),
    ("legal-paths", ChainsOnly(), "chains only, please"),
    ("legal-paths", NeedsQ(), "'NoneType' object"),
    ("greedy-identity", BelievesTheDraft(), "should be"),
    ("greedy-identity", WrongTokenAfterAll(), "should be"),
    ("seeded-identity", PathwiseRejection(), "should be"),
    ("exact-law", DrawsFromP(), "total variation"),
    ("exact-law", BelievesTheDraft(), "total variation"),
    ("exact-law", ReadsRawLogits(), "temperature, top_k and a penalty"),
    ("exact-law", WarpsByItself(), "temperature, top_k and a penalty"),
    ("exact-law", MasksOnlyTheRoot(), "with a constraint"),
    ("exact-law", DecidesWithPicks(), "over two rounds"),
    ("exact-law", DrawsFromPLater(), "after 48 tokens"),
    ("extreme-laws", TakesNothingForOne(), "p gives it no chance"),
    ("extreme-laws", DividesByNothing(), " nan, "),
    ("lossy-differs", Modest(), "declare lossless = True"),
    ("keyed-noise", ThrowsDice(), "first path"),
    ("keyed-noise", CountsCalls(), "first path"),
    ("one-number-a-decision", OneKeyForAll(), "sampler.bernoulli(…, 0) twice"),
    ("within-the-draft", LooksBehindTheDraft(), "sampler.pick(-2)"),
    ("reads-only", Overwrites(), "wrote into the logits"),
    ("no-pickle", Unpickles(), "Luggage"),
]


@pytest.mark.parametrize(("check", "plugin", "said"), BAD_VERIFIERS, ids=named)
def test_a_bad_verifier_is_caught(check: str, plugin: Any, said: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_verifier(plugin, only=[check])
    assert f"[{check}]" in str(caught.value) and said in str(caught.value)


def test_numbers_that_come_again_show_only_in_the_second_round() -> None:
    toy = TOYS["a third is 0"]
    chain = SampledTree(toy.q, (1, 1))
    assert distance(DecidesWithPicks(), chain, toy) < NEAR
    assert distance(DecidesWithPicks(), chain, toy, rounds=2) > 1e-3


def test_a_good_verifier_passes() -> None:
    outcomes = {finding.check: finding.outcome for finding in check_verifier(Plain()).findings}
    assert outcomes.pop("lossy-differs") == "skipped" and set(outcomes.values()) == {"passed"}


class NeedsQAndSaysSo(NeedsQ):
    accepts: ClassVar[Accepts] = Accepts(needs_q=True)


class ChainsOnlyAndSaysSo(ChainsOnly):
    accepts: ClassVar[Accepts] = Accepts(tree=False)


@pytest.mark.parametrize("plugin", [NeedsQAndSaysSo(), ChainsOnlyAndSaysSo()], ids=named)
def test_what_a_verifier_does_not_accept_is_not_given_to_it(plugin: Any) -> None:
    assert check_verifier(plugin, only=["legal-paths", "greedy-identity", "seeded-identity"]).failed == []


def test_every_check_of_a_verifier_can_fail() -> None:
    assert {check for check, _, _ in BAD_VERIFIERS} == set(VERIFIER.all)
