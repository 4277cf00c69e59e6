"""Drafters whose every guess is known beforehand, so that a trial of the accept loop is deterministic.

They know the texts that requests will produce, token ids and budgets; nothing of the engine, verifiers or backends.
A weak drafter hides most faults of an accept loop: an oracle puts every border inside an accepted block, and a tree
oracle puts the accepted path anywhere in the tree.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, frozen

from draftmux.drafting import SequenceDrafter
from draftmux.tree import ROOT
from draftmux.types import Budget, Context, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.types import Step


def keyed_rng(seed: int, context: Context) -> np.random.Generator:
    """Random numbers that depend on the seed, the request and the position, never on the order of calls."""
    return np.random.default_rng((seed, zlib.crc32(context.request_id.encode()), len(context.tokens)))


def ahead(truths: Sequence[Sequence[int]], context: Context, count: int) -> list[int]:
    """The next `count` tokens of the first of `truths` (prompts included) that begins with the committed tokens."""
    past = context.tokens.tolist()
    for truth in truths:
        if list(truth[: len(past)]) == past:
            return list(truth[len(past) : len(past) + count])
    return []


def room(budget: Budget, k: int) -> int:
    """Length of the longest chain within both `budget` and `k`."""
    return min(k, budget.max_nodes, budget.max_depth)


@frozen
class Oracle(SequenceDrafter):
    """Replays the target's own continuation, `k` tokens at a time, so everything is accepted.

    `truths` are whole sequences, prompt and continuation.
    """

    truths: Sequence[Sequence[int]]
    k: int = 4

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """A chain of what comes next."""
        return Draft.chain(ahead(self.truths, context, room(budget, self.k)))


@frozen
class Corrupt(SequenceDrafter):
    """The oracle with token `at` of every draft wrong, so exactly `at` tokens of a longer draft are accepted."""

    truths: Sequence[Sequence[int]]
    vocab_size: int
    k: int = 4
    at: int = 0

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """A chain with one wrong token; the tokens behind it are right again."""
        tokens = ahead(self.truths, context, room(budget, self.k))
        if self.at < len(tokens):
            tokens[self.at] = (tokens[self.at] + 1) % self.vocab_size
        return Draft.chain(tokens)


@frozen
class Empty(SequenceDrafter):
    """Never has a draft."""

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """Nothing."""
        return Draft.empty()


@define
class Turn:
    """Times that `Alternating` was asked in one sequence, and the state of the drafter behind it."""

    asked: int
    inner: Any


@frozen
class Alternating(SequenceDrafter):
    """Another drafter at the first and every second call of a sequence, no draft in between."""

    inner: SequenceDrafter

    def begin(self, context: Context) -> Turn:
        """Count from zero in every sequence."""
        return Turn(0, self.inner.begin(context))

    def propose_one(self, context: Context, state: Turn, budget: Budget) -> Draft:
        """The inner drafter's draft, or nothing."""
        state.asked += 1
        return self.inner.propose_one(context, state.inner, budget) if state.asked % 2 else Draft.empty()

    def observe(self, state: Turn, step: Step) -> None:
        """Pass it on."""
        self.inner.observe(state.inner, step)


@frozen
class RandomTree(SequenceDrafter):
    """A random tree of at most `nodes` random tokens, the same for the same seed, request and position."""

    vocab_size: int
    nodes: int = 8
    seed: int = 0

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """Any tree within the budget, the empty one included."""
        return grow_tree(keyed_rng(self.seed, context), [], self.nodes, self.vocab_size, budget)


@frozen
class TreeOracle(SequenceDrafter):
    """The oracle's chain hidden in a tree of `distractors` other nodes: its nodes stand anywhere, in any rows."""

    truths: Sequence[Sequence[int]]
    vocab_size: int
    k: int = 4
    distractors: int = 6
    seed: int = 0

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """The true chain and distractors that hang from any of its nodes, in a random order of nodes."""
        trunk = ahead(self.truths, context, room(budget, self.k))
        return grow_tree(keyed_rng(self.seed, context), trunk, self.distractors, self.vocab_size, budget)


def grow_tree(rng: np.random.Generator, trunk: Sequence[int], extra: int, vocab_size: int, budget: Budget) -> Draft:
    """A tree that holds the path `trunk` and up to `extra` random nodes, numbered in a random topological order.

    No two siblings share a token. The trunk itself must fit `budget`; the rest is grown only as far as it does.
    """
    grown = Growth(list(trunk), list(range(-1, len(trunk) - 1)))
    for _ in range(min(extra, budget.max_nodes - len(trunk))):
        parent, token = int(rng.integers(-1, len(grown.tokens))), int(rng.integers(vocab_size))
        if grown.takes(parent, token, budget):
            grown.tokens.append(token)
            grown.parents.append(parent)
    return grown.shuffled(rng)


@define
class Growth:
    """A tree while it grows, parents before children."""

    tokens: list[int]
    parents: list[int]

    def takes(self, parent: int, token: int, budget: Budget) -> bool:
        """Whether a new node may hang there: no sibling with its token, not too deep, not one leaf too many."""
        if (parent, token) in zip(self.parents, self.tokens, strict=True):
            return False
        inner = {*self.parents, parent} - {ROOT}
        leaves = len(self.tokens) + 1 - len(inner)
        return self.depth(parent) < budget.max_depth and leaves <= budget.max_branches

    def depth(self, node: int) -> int:
        """Nodes from the root down to `node`."""
        return 0 if node == ROOT else 1 + self.depth(self.parents[node])

    def shuffled(self, rng: np.random.Generator) -> Draft:
        """The draft, with every order of nodes possible that keeps parents before children."""
        place, waiting = {ROOT: ROOT}, list(range(len(self.tokens)))
        order: list[int] = []
        while waiting:
            ready = [node for node in waiting if self.parents[node] in place]
            node = ready[int(rng.integers(len(ready)))]
            place[node] = len(order)
            order.append(node)
            waiting.remove(node)
        return Draft([self.tokens[node] for node in order], [place[self.parents[node]] for node in order])
