"""Planted bad verifiers and backends, one for each check of the kit: proof that the check can fail."""

from __future__ import annotations

import itertools
import pickle
import random
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from attrs import define, evolve, field, frozen

from draftmux.backends.scripted import ScriptedTarget
from draftmux.testing import ConformanceError, check_backend, check_verifier
from draftmux.testing.conformance.kit import BACKEND, VERIFIER
from draftmux.testing.targets import hash_law, tiny_target
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts, Draft, Scores, Tap
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from draftmux.protocols import Opened, Row

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


@define(eq=False)
class Scripted(ScriptedTarget):
    """A right target over six tokens; the bad ones below break one rule each."""

    law: Any = field(factory=lambda: hash_law(2, SIZE))
    vocab_size: int = SIZE


class ForgetsTheFirst(Scripted):
    def open(self, tokens: Any) -> Opened:
        opened = super().open(tokens)
        opened.sequence.processed[:1] = [0] if len(tokens) > 1 else []
        return opened


class ReadsTreesAsChains(Scripted):
    def _score(self, row: Row) -> Scores:
        chain = Draft.chain(row.draft.tokens)
        scores = super()._score(evolve(row, draft=chain))
        row.sequence.scored = row
        return scores


class KeepsTheFirstNodes(Scripted):
    """As many nodes as the path has, and not those of the path."""

    def commit(self, sequence: Any, path: Any) -> None:
        super().commit(sequence, range(len(path)))


class CountsTheRoot(Scripted):
    def open(self, tokens: Any) -> Opened:
        opened = super().open(tokens)
        opened.sequence.processed.append(0)
        return opened


class AnswersInItsOwnOrder(Scripted):
    def score(self, rows: Any) -> Any:
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].sequence.processed))
        answers = super().score([rows[i] for i in order])
        return [evolve(answers[i], logits=answers[i].logits) for i in range(len(rows))]


class ClosesTheNewest(Scripted):
    """Closing a sequence again frees whichever came last."""

    def open(self, tokens: Any) -> Opened:
        self.costs = {**self.costs, 99: super().open(tokens)}  # type: ignore[dict-item]
        return self.costs[99]  # type: ignore[return-value]

    def close(self, sequence: Any) -> None:
        if sequence.closed:
            self.costs[99].sequence.processed.clear()  # type: ignore[attr-defined]
        super().close(sequence)


class RemembersEveryDraft(Scripted):
    def score(self, rows: Any) -> Any:
        for row in rows:
            if row.sequence.scored is not None:
                row.sequence.processed += row.sequence.scored.draft.tokens.tolist()
        return super().score(rows)


class TapsTheRootToo(Scripted):
    """One state too many after a prefill."""

    def open(self, tokens: Any) -> Opened:
        import torch

        return evolve(super().open(tokens), taps={Tap(0, "resid_post"): torch.zeros(len(tokens), 2)})

    def _score(self, row: Row) -> Scores:
        import torch

        return evolve(super()._score(row), taps={Tap(0, "resid_post"): torch.zeros(len(row.draft) + 1, 2)})


class OnePositionShort(Scripted):
    def score(self, rows: Any) -> Any:
        for row in rows:
            reach = len(row.sequence.processed) + 1 + int(max(row.draft.depths, default=0))
            assert reach < 20, "no room for the last position"
        return super().score(rows)


class CostsNothing(Scripted):
    def cost(self, nodes: int) -> float:
        return 0.0


BAD_BACKENDS: list[tuple[str, Any, str]] = [
    ("protocol", Scripted(eos_ids=frozenset({SIZE})), "end token 6"),
    ("prefill", ForgetsTheFirst(), "logits are off"),
    ("tree-logits", ReadsTreesAsChains(), "logits are off"),
    ("accepted-paths", KeepsTheFirstNodes(), "logits are off"),
    ("cache-length", CountsTheRoot(), "one fewer is right"),
    ("batch-is-alone", AnswersInItsOwnOrder(), "logits"),
    ("rows-come-and-go", ClosesTheNewest(), "logits are off"),
    ("scores-again", RemembersEveryDraft(), "logits are off"),
    ("taps", TapsTheRootToo(), "all but the root are 3"),
    ("max-length", OnePositionShort(max_length=20), "no room for the last position"),
    ("cost", CostsNothing(), "cost(0) is 0.0"),
]


@pytest.mark.parametrize(("check", "target", "said"), BAD_BACKENDS, ids=named)
def test_a_bad_backend_is_caught(check: str, target: Any, said: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_backend(target, only=[check])
    assert f"[{check}]" in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize(
    "target",
    [Scripted(), tiny_target("llama", positions=64, taps=(Tap(0, "resid_post"),))],
    ids=["scripted", "model"],
)
def test_good_targets_pass(target: Any) -> None:
    assert check_backend(target).failed == []


def test_every_check_of_a_backend_can_fail() -> None:
    assert {check for check, _, _ in BAD_BACKENDS} == set(BACKEND.all)
