"""Planted bad backends, one for each check of the kit: proof that the check can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, evolve, field

from draftmux.backends.scripted import ScriptedTarget
from draftmux.testing import ConformanceError, check_backend
from draftmux.testing.conformance.kit import BACKEND
from draftmux.testing.targets import hash_law, tiny_target
from draftmux.types import Draft, Scores, Tap

if TYPE_CHECKING:
    from draftmux.protocols import Opened, Row

SIZE = 6


def named(value: Any) -> str:
    return "" if isinstance(value, str) else type(value).__name__


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
