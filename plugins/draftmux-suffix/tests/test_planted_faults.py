"""Faults of drafting and sharing, each with a property that notices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from attrs import define, evolve, field

from draftmux.arrays import frozen_view
from draftmux.generation import Generation
from draftmux.protocols import DraftRequest, Resources
from draftmux.testing.harness import assemble, serve
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.reference import Ask
from draftmux.testing.targets import random_table, scripted, table_law
from draftmux.types import Budget, Context, Draft, Step

pytest.importorskip("draftmux_suffix", reason="install it: pip install -e plugins/draftmux-suffix")

from draftmux_suffix.drafter import SuffixDecoding, Suffixes
from draftmux_suffix.shared import SharedOutputs
from draftmux_suffix.trie import SuffixTrie

FAULTS = Faults()  # filled by the decorators below, before pytest reads it
DEPTH = 6


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


# The properties, on fixed inputs.


def text(seed: int, length: int = 60, letters: int = 4) -> list[int]:
    return np.random.default_rng(seed).integers(0, letters, length).tolist()


def check_same(trie: SuffixTrie, texts: Sequence[Sequence[int]]) -> None:
    """The trie counts all short strings as one that was made of these texts."""
    fresh = SuffixTrie(trie.depth)
    for each in texts:
        fresh.append(fresh.open(), each)
    for string in (string for size in (1, 2, 3, 4) for string in product(range(4), repeat=size)):
        found, expected = trie.find(string), fresh.find(string)
        assert (found and trie.count(found)) == (expected and fresh.count(expected)), string


@define
class Spied:
    """A drafter that keeps the states it has begun, and the contexts they were asked with."""

    inner: Any
    states: list[Suffixes] = field(factory=list)
    texts: dict[int, list[int]] = field(factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def begin(self, context: Context) -> Suffixes:
        self.states.append(self.inner.begin(context))
        return self.states[-1]

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        for request in requests:
            self.texts[id(request.state)] = request.context.tokens.tolist()
        return self.inner.propose(requests)  # type: ignore[no-any-return]

    def observe(self, state: Suffixes, step: Step) -> None:
        self.inner.observe(state, step)


def knows_committed_tokens_only() -> None:
    """After requests with many rejected drafts, tries and outputs hold what was committed."""
    target = scripted(table_law(random_table(3, 4)), 4)
    spied = Spied(SuffixDecoding(depth=DEPTH, shared=True, draft="tree").bind(Resources()))
    asks = [Ask((0, 1), Generation(max_new_tokens=50, temperature=1.0, seed=seed), f"r{seed}") for seed in range(3)]
    outcomes = serve(assemble(target, {"suffix": spied}), asks, max_batch=2)
    assert len(spied.states) == len(asks)
    for ask, state in zip(asks, spied.states, strict=True):
        result = outcomes[ask.request_id].finished
        assert result.metrics.accepted < result.metrics.drafted
        assert tuple(state.output) == result.tokens
        assert list(state.text.tokens) == spied.texts[id(state)] == [0, 1, *result.tokens][: len(state.text.tokens)]
        check_same(state.trie, [state.text.tokens])


def context_of(tokens: Sequence[int]) -> Context:
    return Context("r", frozen_view(np.array(tokens, dtype=np.int64)), len(tokens), 100, {}, (), Generation())


def guess(tokens: Sequence[int], budget: Budget | None = None, **options: Any) -> Any:
    return Suffixes(SuffixDecoding(**options), None).guess(np.array(tokens), budget or Budget())


def drafts_as_long_as_the_match() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    found = guess(tokens)
    assert (found.match, found.tokens, found.score) == (3, [4, 5, 6], 1.5)
    found = guess([0, *tokens[3:], 5, 3], min_prob=0.4)
    assert (found.match, found.tokens) == (1, [5])


def drafts_the_likeliest() -> None:
    found = guess([1, 2, 1, 3, 1, 3, 1])
    assert (found.match, found.tokens) == (3, [3, 1])  # as good after one or two tokens: the longest match wins
    assert guess([1, 2, 1, 3, 1], depth=2).tokens == [3]  # on ties the latest


def keeps_its_budget() -> None:
    tokens = [*range(10), *range(9)]
    for budget in (Budget(max_nodes=3), Budget(max_depth=2), Budget(max_branches=0)):
        for kind in ("path", "tree"):
            draft = guess(tokens, budget, draft=kind).draft()
            assert len(draft) <= budget.max_nodes
            assert draft.depths.max(initial=0) <= budget.max_depth
            assert budget.max_branches or not len(draft)


def shares_only_when_told_and_only_what_has_ended() -> None:
    for shared in (False, True):
        drafter: Any = SuffixDecoding(shared=shared).bind(Resources())
        running = drafter.begin(context_of([0]))
        drafter.observe(running, Step(None, None, Draft.empty(), None, (5, 6, 7, 8), {}, {}))  # type: ignore[arg-type]
        context = context_of([5, 6])
        assert not drafter.begin(context).guess(context.tokens, Budget()).tokens
        del running
        assert bool(drafter.begin(context).guess(context.tokens, Budget()).tokens) == shared


def remembers_the_latest() -> None:
    outputs = SharedOutputs(DEPTH, 2)
    for seed in range(4):
        state = Suffixes(SuffixDecoding(), None)
        state.output.extend(text(seed))
        outputs.enter(state, state.output)
        del state
    last = Suffixes(SuffixDecoding(), None)
    outputs.enter(last, last.output)
    check_same(outputs.trie, [text(2), text(3)])


# Rejected tokens.


@FAULTS.breaks(knows_committed_tokens_only)
def drafted_tokens_are_indexed(patch: Any) -> None:
    def propose(self: Any, requests: Any) -> list[Draft]:
        drafts = original(self, requests)
        for request, draft in zip(requests, drafts, strict=True):
            request.state.trie.append(request.state.text, draft.tokens.tolist())
        return drafts

    original = SuffixDecoding.propose
    patch.setattr(SuffixDecoding, "propose", propose)


@FAULTS.breaks(knows_committed_tokens_only)
def drafted_tokens_are_shared(patch: Any) -> None:
    def observe(self: Any, state: Any, step: Step) -> None:
        state.output.extend([*step.draft.tokens.tolist(), step.committed[-1]])

    patch.setattr(SuffixDecoding, "observe", observe)


@FAULTS.breaks(knows_committed_tokens_only)
def the_last_committed_token_is_not_indexed(patch: Any) -> None:
    catch_up = Suffixes.catch_up
    patch.setattr(Suffixes, "catch_up", lambda self, tokens: catch_up(self, tokens[:-1]))


# Drafting.


@FAULTS.breaks(drafts_as_long_as_the_match)
def the_match_is_counted_one_too_long(patch: Any) -> None:
    room = SuffixDecoding.room
    patch.setattr(SuffixDecoding, "room", lambda self, match, budget: room(self, match + 1, budget))


@FAULTS.breaks(drafts_as_long_as_the_match)
def the_match_is_counted_one_too_short(patch: Any) -> None:
    room = SuffixDecoding.room
    patch.setattr(SuffixDecoding, "room", lambda self, match, budget: room(self, match - 1, budget))


@FAULTS.breaks(drafts_the_likeliest)
def the_first_follower_is_the_best_forever(patch: Any) -> None:
    def count(self: Any, parent: int, child: int) -> None:
        best = self._best[parent]
        original(self, parent, child)
        self._best[parent] = best

    def rank(self: Any, parent: int, node: int) -> None:
        best = self._best[parent]
        ranked(self, parent, node)
        self._best[parent] = node if best < 0 else best

    original, ranked = SuffixTrie._raise, SuffixTrie._rank
    patch.setattr(SuffixTrie, "_raise", count)
    patch.setattr(SuffixTrie, "_rank", rank)


@FAULTS.breaks(keeps_its_budget)
def the_budget_is_ignored(patch: Any) -> None:
    patch.setattr(Budget, "within", lambda self, other: other)


# Sharing.


@FAULTS.breaks(shares_only_when_told_and_only_what_has_ended)
def everything_is_shared(patch: Any) -> None:
    patch.setattr(SuffixDecoding, "bind", lambda self, resources: evolve(self, outputs=SharedOutputs(DEPTH, 9)))


@FAULTS.breaks(shares_only_when_told_and_only_what_has_ended)
def running_requests_are_shared(patch: Any) -> None:
    def enter(self: Any, state: Any, output: Any) -> None:
        for _, tokens in self._running:
            self._keep(tokens)
        self._running.append((lambda: state, output))

    patch.setattr(SharedOutputs, "enter", enter)


@FAULTS.breaks(remembers_the_latest)
def the_newest_output_is_evicted(patch: Any) -> None:
    def keep(self: Any, tokens: Any) -> None:
        if len(self._kept) < self._max_requests:
            original(self, tokens)

    original = SharedOutputs._keep
    patch.setattr(SharedOutputs, "_keep", keep)


@FAULTS.breaks(remembers_the_latest)
def nothing_is_evicted(patch: Any) -> None:
    def keep(self: Any, tokens: Any) -> None:
        self._max_requests = 100
        original(self, tokens)

    original = SharedOutputs._keep
    patch.setattr(SharedOutputs, "_keep", keep)
