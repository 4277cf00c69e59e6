"""Planted bad drafters and routers, one for each check of the kit: proof that the check can fail."""

from __future__ import annotations

import itertools
import pickle
import random
import time
from collections import Counter
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from attrs import field, frozen

from draftmux.drafting import SequenceDrafter
from draftmux.models.load import load_model
from draftmux.noise import Stream, gumbel, stream_seed, uniform
from draftmux.protocols import Row
from draftmux.routers.fixed import Fixed
from draftmux.routing import BaseRouter
from draftmux.testing import ConformanceError, ConformanceWarning, check_drafter, check_router
from draftmux.testing.conformance.kit import DRAFTER, ROUTER
from draftmux.testing.drafters import Empty
from draftmux.testing.sampled import KeyedNoise, SampledTree
from draftmux.types import Choice, Draft, Emits, Needs, Tap

TAP = Tap(0, "resid_post")


def guess(context: Any, budget: Any, length: int = 4) -> Draft:
    """The last tokens once more."""
    tokens = context.tokens[-min(length, budget.max_nodes, budget.max_depth) :].tolist()
    return Draft.from_candidates([tokens], budget)


class Good(SequenceDrafter):
    """Keeps every rule; the bad ones below break one each."""

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return guess(context, budget)


class NoObserve:
    needs = Needs()
    emits = Emits()

    def uses(self) -> tuple[str, ...]:
        return ()

    def bind(self, resources: Any) -> Any:
        return self

    def begin(self, context: Any) -> None:
        return None

    def propose(self, requests: Any) -> list[Draft]:
        return [Draft.empty() for _ in requests]


class BindsToAnother(Good):
    emits: ClassVar[Emits] = Emits(tree=False)

    def bind(self, resources: Any) -> Any:
        return Good()


@frozen
class Tapped(Good):
    """Guesses by all hidden states so far; what comes while it sits out waits in the state."""

    needs: ClassVar[Needs] = Needs(taps=(TAP,))

    def begin(self, context: Any) -> list[Any]:
        return [context.taps[TAP]]

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([sum(int(states.sum() * 100) for states in state) % 40])

    def observe(self, state: Any, step: Any) -> None:
        state.append(step.taps[TAP])


class SeesOnlyWhenAsked(Tapped):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        if len(context.history):
            state.append(context.taps[TAP])
        return super().propose_one(context, state, budget)

    def observe(self, state: Any, step: Any) -> None:
        pass


class TapsTooDeep(Good):
    needs: ClassVar[Needs] = Needs(taps=(Tap(31, "resid_post"),))


@frozen
class DraftModel(Good):
    """Drafts greedily with a model, the whole text again each time."""

    needs: ClassVar[Needs] = Needs(models=("draft",))

    model: Any = None

    def bind(self, resources: Any) -> Any:
        return DraftModel(load_model(resources.models["draft"])[0])

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        import torch

        tokens = context.tokens.tolist()
        with torch.inference_mode():
            for _ in range(min(2, budget.max_nodes, budget.max_depth)):
                tokens.append(int(self.model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax()))
        return Draft.chain(tokens[len(context.tokens) :])


class ReadsUndeclaredTap(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.empty() if context.taps.get(TAP) is None else guess(context, budget)


class NeedsUndeclaredModel(Good):
    def bind(self, resources: Any) -> Any:
        return (resources.models["draft"], self)[1]


class UndeclaredTree(Good):
    emits: ClassVar[Emits] = Emits(tree=False)

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.from_candidates([[1], [2]], budget)


class Twins(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft([1, 1], [-1, -1])


class AlwaysFive(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([1, 2, 3, 4, 5])


class TooManyBranches(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft([1, 2, 3][: budget.max_nodes], [-1, -1, -1][: budget.max_nodes])


class FailsUnderPenalties(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        assert context.generation.repetition_penalty == 1, "no penalties, please"
        return guess(context, budget)


class FailsWhenSampling(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        assert context.generation.greedy, "greedy only, please"
        return guess(context, budget)


class NeedsTwoTokens(Good):
    def begin(self, context: Any) -> int:
        return int(context.tokens[-2])


@frozen
class OneStateForAll(Good):
    seen: list[int] = field(factory=list)

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        self.seen.append(int(context.tokens[-1]))
        return Draft.from_candidates([self.seen[-3:]], budget)


@frozen
class NeverForgets(Good):
    asked: Any = field(factory=Counter)

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        self.asked[context.request_id] += 1
        return Draft.chain([self.asked[context.request_id]])


class MixesUpTheBatch(Good):
    def begin(self, context: Any) -> int:
        return int(context.tokens[0])

    def propose(self, requests: Any) -> list[Draft]:  # type: ignore[misc]
        return [Draft.chain([max(request.state for request in requests)]) for _ in requests]


class ThrowsDice(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([random.randrange(40)])


class CountsItsTurns(Good):
    def begin(self, context: Any) -> Any:
        return itertools.count()

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([next(state)])


class LearnsFromRejected(Good):
    def begin(self, context: Any) -> dict[int, int]:
        return {}

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([state.get(int(context.tokens[-1]), 0)])

    def observe(self, state: Any, step: Any) -> None:
        state.update(itertools.pairwise(step.draft.tokens.tolist()))


class ForwardInObserve(Good):
    def observe(self, state: Any, step: Any) -> None:
        import torch

        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))


class SleepsInObserve(Good):
    def observe(self, state: Any, step: Any) -> None:
        time.sleep(0.02)


@frozen
class ScoresInObserve(Good):
    backend: Any = None

    def bind(self, resources: Any) -> Any:
        return ScoresInObserve(resources.backend)

    def observe(self, state: Any, step: Any) -> None:
        sequence = self.backend.open([1, 2]).sequence
        self.backend.score([Row(sequence, 2, Draft.empty())])


def law(prefix: tuple[int, ...]) -> list[float]:
    return after(prefix[-1])


@cache
def after(token: int) -> list[float]:
    weights = np.random.default_rng(token).integers(1, 9, 40) ** 2
    return (weights / weights.sum()).tolist()  # type: ignore[no-any-return]


class DropsUnlikely(SampledTree):
    """Looks at the token it drew, and submits it only if it was likely."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        draft = super().grow(context, budget, noise)
        kept = 0
        while kept < len(draft) and float(draft.q[kept, draft.tokens[kept]]) > 0.03:  # type: ignore[index]
            kept += 1
        return Draft.chain(draft.tokens[:kept], draft.q[:kept]) if kept else Draft.empty()  # type: ignore[index]


class SortsSiblings(SampledTree):
    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        draft = super().grow(context, budget, noise)
        order = np.argsort([-float(row[token]) for row, token in zip(draft.q, draft.tokens, strict=True)])  # type: ignore[arg-type]
        return Draft(draft.tokens[order], draft.parents, draft.q[order.tolist()])  # type: ignore[index]


class KeepsTheLikelier(SampledTree):
    """Draws two, and submits the better one."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        draft = super().grow(context, budget, noise)
        best = max(range(len(draft)), key=lambda node: float(draft.q[node, draft.tokens[node]]))  # type: ignore[index]
        return Draft.chain([int(draft.tokens[best])], draft.q[[best]])  # type: ignore[index]


class FlatQ(SampledTree):
    """Draws from one law, and says that it was another."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        import torch

        draft = super().grow(context, budget, noise)
        return Draft(draft.tokens, draft.parents, torch.full((len(draft), 40), 1 / 40)) if len(draft) else draft


class OneQForAllSiblings(SampledTree):
    """Draws without replacement, and gives the law of the first sibling for all."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        draft = super().grow(context, budget, noise)
        return Draft(draft.tokens, draft.parents, draft.q[:1].expand(len(draft), -1)) if len(draft) else draft  # type: ignore[index]


class SameNoiseAtEveryStep(SampledTree):
    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        return super().grow(context, budget, KeyedNoise(context.generation.seed, root=0))


@frozen
class Rekeyed:
    """Noise whose numbers are those of another place and key."""

    inner: Any
    key: int

    def draw(self, law: Any, key: int) -> int:
        return int(self.inner.draw(law, self.key))

    def pick(self, law: Any, depth: int) -> int:
        return int(self.inner.pick(law, depth))


class SameNoiseAtEveryNode(SampledTree):
    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        return super().grow(context, budget, Rekeyed(noise, 0))


class NoiseByPosition(SampledTree):
    """A node's noise depends on where its token will stand, so the next step draws with it again."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        seed, root = context.generation.seed, len(context.tokens)

        class ByPosition(Rekeyed):
            def draw(self, law: Any, key: int) -> int:
                return KeyedNoise(seed, root + key).draw(law, 0)

        return super().grow(context, budget, ByPosition(noise, 0))


class DrawsAsVerifiersDo(SampledTree):
    """With the numbers of the draw after a rejection."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        import torch

        row = torch.tensor([self.law((int(context.tokens[-1]),))], dtype=torch.float64)
        noise = gumbel(self.stream(context.generation.seed), len(context.tokens), row.shape[1])
        return Draft.chain([int((row[0].log() + noise).argmax())], row)

    def stream(self, seed: int) -> int:
        return stream_seed(seed, Stream.RESIDUAL)


class DrawsAsTheTargetDoes(DrawsAsVerifiersDo):
    def stream(self, seed: int) -> int:
        return stream_seed(seed, Stream.TOKEN)


class DrawsAsVerifiersDecide(DrawsAsVerifiersDo):
    """With the number that decides whether the token stands."""

    def grow(self, context: Any, budget: Any, noise: Any) -> Draft:
        draft = super().grow(context, budget, noise)
        number = uniform(stream_seed(context.generation.seed, Stream.ACCEPT), len(context.tokens), 1)
        return Draft.chain([int((draft.q[0].cumsum(0) < number).sum())], draft.q)  # type: ignore[index]


class Writes(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        context.tokens.flags.writeable = True
        context.tokens[-1] = 0
        return Draft.empty()


class KeepsAView(Good):
    def begin(self, context: Any) -> Any:
        return context.tokens

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        return Draft.chain([abs(int(state[-1]))])


class Luggage:
    """Something to unpickle."""


class Unpickles(Good):
    def begin(self, context: Any) -> Any:
        return pickle.loads(pickle.dumps(Luggage()))


class ReadsTheWholeTextAgain(Good):
    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        best = max(range(len(context.tokens)), key=lambda at: (context.tokens[at] == context.tokens[-1], -at))
        return Draft.chain([int(context.tokens[best])])


def named(value: Any) -> str:
    return "" if isinstance(value, str) else type(value).__name__


BAD_DRAFTERS: list[tuple[str, Any, str]] = [
    ("protocol", NoObserve(), "lacks observe"),
    ("protocol", BindsToAnother(), "pipelines believe the first"),
    ("protocol", TapsTooDeep(), "setting=Setting(target=…)"),
    ("catches-up", SeesOnlyWhenAsked(), "only"),
    ("declared-needs", ReadsUndeclaredTap(), "tap '0.resid_post'"),
    ("declared-needs", NeedsUndeclaredModel(), "model 'draft'"),
    ("legal-trees", UndeclaredTree(), "emits.tree False"),
    ("legal-trees", Twins(), "same token"),
    ("budgets", AlwaysFive(), "a draft of 5 nodes"),
    ("budgets", TooManyBranches(), "max_branches"),
    ("greedy-identity", FailsUnderPenalties(), "no penalties, please"),
    ("seeded-identity", FailsWhenSampling(), "greedy only, please"),
    ("hostile-prompts", NeedsTwoTokens(), "'one token'"),
    ("own-state", OneStateForAll(), "in a batch"),
    ("own-state", NeverForgets(), "after other requests"),
    ("own-state", MixesUpTheBatch(), "in a batch"),
    ("repeatable", ThrowsDice(), "first it says"),
    ("catches-up", CountsItsTurns(), "only"),
    ("rejected-drafts-leave-no-trace", LearnsFromRejected(), "rejected drafts that end in token 38"),
    ("lazy-observe", ForwardInObserve(), "observe ran"),
    ("lazy-observe", SleepsInObserve(), "observe took"),
    ("lazy-observe", ScoresInObserve(), "observe called `open`"),
    ("non-anticipation", DropsUnlikely(law, (1, 1)), "the law says"),
    ("non-anticipation", SortsSiblings(law, (2,)), "the law says"),
    ("non-anticipation", KeepsTheLikelier(law, (2,)), "the law says"),
    ("non-anticipation", FlatQ(law, (1,)), "the law says"),
    ("non-anticipation", OneQForAllSiblings(law, (2,), replace=False), "same token 0 times in 1200 drafts"),
    ("independent-draws", SameNoiseAtEveryStep(law, (1, 1)), "node 0 at the second step go together"),
    ("independent-draws", SameNoiseAtEveryNode(law, (1, 1)), "node 1 at the first step go together"),
    ("independent-draws", NoiseByPosition(law, (1, 1, 1)), "node 1 at the first step and of node 0 at the second"),
    ("fresh-noise", DrawsAsVerifiersDo(law, (1,)), "draw after a rejection"),
    ("fresh-noise", DrawsAsTheTargetDoes(law, (1,)), "target's own draw"),
    ("fresh-noise", DrawsAsVerifiersDecide(law, (1,)), "number that accepts it"),
    ("reads-only", Writes(), "wrote into the tokens"),
    ("reads-only", KeepsAView(), "overwritten"),
    ("no-pickle", Unpickles(), "Luggage"),
]


@pytest.mark.parametrize(("check", "plugin", "said"), BAD_DRAFTERS, ids=named)
def test_a_bad_drafter_is_caught(check: str, plugin: Any, said: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_drafter(plugin, only=[check])
    assert f"[{check}]" in str(caught.value) and said in str(caught.value)


LAWS = ["legal-trees", "non-anticipation", "fresh-noise", "independent-draws"]
STATE = ["protocol", "declared-needs", "catches-up", "no-pickle"]


@pytest.mark.parametrize(
    ("plugin", "only"),
    [
        (Good(), None),
        (Tapped(), None),
        (DraftModel(), STATE),
        (SampledTree(law, (2, 2), replace=False), None),
        (SampledTree(law, (1, 1, 1)), LAWS),
        (SampledTree(law, (1, 1), unlikely=0.03), LAWS),
    ],
    ids=["point masses", "taps", "model", "tree", "chain", "stops after the unlikely"],
)
def test_their_good_twins_pass(plugin: Any, only: list[str] | None) -> None:
    assert check_drafter(plugin, only=only).doubtful == []


@pytest.mark.parametrize(
    ("check", "plugin", "said"),
    [("long-context", ReadsTheWholeTextAgain(), "keep an index"), ("engages", Empty(), "never drafted")],
)
def test_what_is_only_hardly_meant_is_said(check: str, plugin: Any, said: str) -> None:
    with pytest.warns(ConformanceWarning, match=said):
        [finding] = check_drafter(plugin, only=[check]).doubtful
    assert finding.check == check


def test_every_check_of_a_drafter_can_fail() -> None:
    assert {check for check, _, _ in BAD_DRAFTERS} | {"long-context", "engages"} == set(DRAFTER.all)


def test_all_failures_are_named_at_once() -> None:
    with pytest.raises(ConformanceError) as caught:
        check_drafter(ThrowsDice(), only=["repeatable", "own-state", "budgets"])
    assert [finding.check for finding in caught.value.report.failed] == ["own-state", "repeatable"]
    assert "fails 2 of 3 checks" in str(caught.value)


class First(BaseRouter):
    """Keeps every rule: the first drafter that there is."""

    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(next(iter(drafters), None))


class NoChoose:
    needs = Needs()


class TapRouter(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(None) if TAP in context.taps else Choice(next(iter(drafters), None))


class Stranger(First):
    def uses(self) -> tuple[str, ...]:
        return ("one",)

    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice("two")


class NeedsADrafter(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(next(iter(drafters)))


class LosesItsMemory(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        assert len(context.history) < 64, "too long ago"
        return Choice(next(iter(drafters), None))


class GreedyRouter(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        assert context.generation.greedy, "greedy only, please"
        return Choice(next(iter(drafters), None))


class ShyRouter(First):
    def begin(self, context: Any) -> int:
        return int(context.tokens[-2])


@frozen
class OneMoodForAll(First):
    asked: Any = field(factory=itertools.count)

    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(list(drafters)[next(self.asked) % 3] if len(drafters) == 3 else None)


class DiceRouter(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(random.choice([None, *drafters]))


class Asks(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        name = next(iter(drafters), None)
        return Choice(name if name and drafters[name].propose([]) == [] else None)


class WritingRouter(First):
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        context.tokens.flags.writeable = True
        context.tokens[0] = 0
        return Choice(None)


class UnpicklingRouter(First):
    def begin(self, context: Any) -> Any:
        return pickle.loads(pickle.dumps(Luggage()))


BAD_ROUTERS: list[tuple[str, Any, str]] = [
    ("protocol", NoChoose(), "lacks"),
    ("declared-needs", TapRouter(), "tap '0.resid_post'"),
    ("legal-choices", Stranger(), "chose drafter 'two'"),
    ("legal-choices", NeedsADrafter(), "StopIteration"),
    ("greedy-identity", LosesItsMemory(), "too long ago"),
    ("seeded-identity", GreedyRouter(), "greedy only, please"),
    ("hostile-prompts", ShyRouter(), "'one token'"),
    ("own-state", OneMoodForAll(), "in a batch"),
    ("repeatable", DiceRouter(), "first it says"),
    ("keeps-its-hands-off", Asks(), "one.propose"),
    ("reads-only", WritingRouter(), "wrote into the tokens"),
    ("no-pickle", UnpicklingRouter(), "Luggage"),
]


@pytest.mark.parametrize(("check", "plugin", "said"), BAD_ROUTERS, ids=named)
def test_a_bad_router_is_caught(check: str, plugin: Any, said: str) -> None:
    with pytest.raises(ConformanceError) as caught:
        check_router(plugin, only=[check])
    assert f"[{check}]" in str(caught.value) and said in str(caught.value)


def test_a_good_router_passes() -> None:
    assert check_router(First()).doubtful == []


def test_a_router_that_never_drafts_is_said() -> None:
    with pytest.warns(ConformanceWarning, match="never chose"):
        check_router(Fixed(), only=["engages"])


def test_every_check_of_a_router_can_fail() -> None:
    assert {check for check, _, _ in BAD_ROUTERS} | {"engages"} == set(ROUTER.all)
