"""What must hold of a backend and of the engine around plugins, as plain functions of their inputs.

Each raises AssertionError when it does not hold. Hypothesis can feed them; a fixed input can repeat them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from draftmux.errors import PluginError
from draftmux.protocols import Row
from draftmux.testing.drafters import grow_tree
from draftmux.testing.harness import NEAR, assemble, check_outcome, open_sequences, serve
from draftmux.testing.routers import Watching
from draftmux.types import Budget, Tap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from torch import Tensor

    from draftmux.backends.target import Target
    from draftmux.drafting import SequenceDrafter
    from draftmux.engine.step import Parts
    from draftmux.testing.harness import Outcome, Trial
    from draftmux.testing.reference import Ask


@define(eq=False)
class Fed:
    """An open sequence and what a plain reader knows of it: its committed tokens."""

    handle: Any
    tokens: list[int]


@define(eq=False)
class TreePasses:
    """Random trees through a transformers target, several rounds of random accepted paths, rows that come and go.

    After each pass the logits of every node equal a forward over its whole prefix; after each commit the cached keys
    and values equal those of a fresh prefill.
    """

    target: Target
    rng: Generator
    max_nodes: int = 8
    near: float = NEAR  # eager attention rounds its softmax to float32
    open: list[Fed] = field(factory=list)

    def check(self, lengths: Sequence[int], rounds: int = 3) -> None:
        """Open a sequence of each length (more than one token), and go through some rounds."""
        for length in lengths:
            self._enter(length)
        for _ in range(rounds):
            self._round()
            if self.rng.random() < 0.4:
                self._leave()
                self._enter(int(self.rng.integers(1, 14)))
        while self.open:
            self._leave()
        assert open_sequences(self.target) == 0

    def _enter(self, length: int) -> None:
        tokens = self.rng.integers(0, self.target.vocab_size, length).tolist()
        self.open.append(Fed(self.target.open(tokens).sequence, tokens))

    def _leave(self) -> None:
        gone = self.open.pop(int(self.rng.integers(len(self.open))))
        self.target.close(gone.handle)
        self.target.close(gone.handle)  # twice is harmless

    def _round(self) -> None:
        """Some of the sequences take part, in any order."""
        order = self.rng.permutation(len(self.open))[: int(self.rng.integers(1, len(self.open) + 1))]
        taking = [self.open[i] for i in order]
        drafts = [
            grow_tree(self.rng, [], int(self.rng.integers(self.max_nodes + 1)), self.target.vocab_size, Budget())
            for _ in taking
        ]
        rows = [Row(fed.handle, fed.tokens[-1], draft) for fed, draft in zip(taking, drafts, strict=True)]
        for fed, row, scores in zip(taking, rows, self.target.score(rows), strict=True):
            for node in range(-1, len(row.draft)):
                path = row.draft.tokens[row.draft.path_to(node)].tolist()
                check_close(
                    scores.logits[node + 1], whole_forward(self.target.model, [*fed.tokens, *path])[0], self.near
                )
        for fed, row in zip(taking, rows, strict=True):
            self._commit(fed, row)
        for fed in self.open:
            self._check_cache(fed)

    def _commit(self, fed: Fed, row: Row) -> None:
        path = row.draft.path_to(int(self.rng.integers(-1, len(row.draft))))
        self.target.commit(fed.handle, path)
        fed.tokens += [*row.draft.tokens[path].tolist(), int(self.rng.integers(self.target.vocab_size))]

    def _check_cache(self, fed: Fed) -> None:
        """Keys and values of all tokens but the last, in order."""
        length = len(fed.tokens) - 1
        assert fed.handle.length == length, f"{fed.handle.length} rows for {len(fed.tokens)} tokens"
        if not length:
            return
        fresh = whole_forward(self.target.model, fed.tokens[:-1])[1]
        for layer, reference in zip(self.target.cache.slot_layers, fresh.layers, strict=True):
            check_close(layer.keys[fed.handle.row, :, :length], reference.keys[0], self.near)
            check_close(layer.values[fed.handle.row, :, :length], reference.values[0], self.near)


def whole_forward(model: Any, tokens: Sequence[int]) -> tuple[Tensor, Any]:
    """Logits `(V,)` after `tokens` and the keys and values of all of them, with transformers' own mask and cache."""
    import torch
    from transformers import DynamicCache

    with torch.inference_mode():
        output = model(input_ids=torch.tensor([list(tokens)]), cache=DynamicCache(), use_cache=True)
    return output.logits[0, -1], output.cache


def check_close(found: Tensor, expected: Tensor, near: float = NEAR) -> None:
    """Same shape, and every entry as near as that."""
    assert found.shape == expected.shape, f"shape {tuple(found.shape)} should be {tuple(expected.shape)}"
    worst = max((found - expected).abs().flatten().tolist(), default=0.0)
    assert worst <= near, f"values are off by {worst}"


def check_taps(target: Target, taps: Sequence[Tap], ask: Ask, drafter: SequenceDrafter) -> None:
    """At every step a plugin sees the tapped states of exactly the positions that the last pass committed.

    `target` taps the residual stream after its first layer and more; that one is compared with transformers' own.
    """
    watch = Watching()
    serve(assemble(target, {"drafter": drafter}, watch), [ask])
    counts = [len(ask.tokens) - 1, *(len(step.committed) for step in watch.steps[:-1])]
    for context, count in zip(watch.contexts, counts, strict=True):
        fresh = _fresh_taps(target, context.tokens.tolist())
        assert set(context.taps) == set(taps)
        for tap in taps:
            check_close(context.taps[tap], fresh[tap][len(fresh[tap]) - count :])


def _fresh_taps(target: Target, tokens: list[int]) -> dict[Tap, Tensor]:
    """Tapped states of every token but the last: from a prefill, and where transformers gives them, from there."""
    import torch

    opened = target.open(tokens)
    target.close(opened.sequence)
    fresh = dict(opened.taps)
    if len(tokens) > 1:
        with torch.inference_mode():
            states = target.model(input_ids=torch.tensor([tokens[:-1]]), output_hidden_states=True).hidden_states
        fresh[Tap(0, "resid_post")] = states[1][0]
    return fresh


def check_skip(trial: Trial, parts: Parts, culprit: str, max_batch: int = 1) -> dict[str, Outcome]:
    """Under `skip` a misbehaving plugin changes no token, and its faults are counted under its name."""
    outcomes = serve(parts, trial.asks, max_batch)
    for name, outcome in outcomes.items():
        check_outcome(outcome, trial.expected[name])
    faults = [fault for outcome in outcomes.values() for fault in outcome.finished.metrics.faults]
    assert faults, f"no fault of the {culprit} was counted"
    assert all(fault.startswith(f"{culprit}:") for fault in faults), faults
    assert open_sequences(trial.target) == 0
    return outcomes


def check_raise(trial: Trial, parts: Parts, culprit: str, victims: Sequence[str]) -> None:
    """Under `raise` the victims fail with the plugin's name, all others are served, nothing stays open."""
    outcomes = serve(parts, trial.asks, max_batch=len(trial.asks))
    for name, outcome in outcomes.items():
        if name in victims:
            assert isinstance(outcome.error, PluginError), f"'{name}' should have failed: {outcome}"
            assert culprit in str(outcome.error), outcome.error
        else:
            check_outcome(outcome, trial.expected[name])
            assert not outcome.finished.metrics.faults
    assert open_sequences(trial.target) == 0


def check_alone(trial: Trial, parts: Parts, max_batch: int) -> None:
    """Every request takes the same steps in a batch as alone: nothing leaks from one to the other."""
    together = serve(parts, trial.asks, max_batch)
    for ask in trial.asks:
        check_outcome(together[ask.request_id], trial.expected[ask.request_id])
        alone = serve(parts, [ask])[ask.request_id]
        if alone.result is not None:
            assert _course(alone) == _course(together[ask.request_id]), f"'{ask.request_id}' went another way alone"


def _course(outcome: Outcome) -> Any:
    """What a request's steps did, as far as time does not matter."""
    metrics = outcome.finished.metrics
    steps = [tuple((piece.token, piece.source) for piece in delta.pieces) for delta in outcome.deltas]
    return steps, metrics.drafted, metrics.accepted, dict(metrics.steps_by_drafter), dict(metrics.faults)
