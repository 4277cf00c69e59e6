"""Draft models by the book, and drafts as EAGLE-2 describes them, written without any of the code under test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from attrs import define, field

from draftmux.arrays import frozen_view
from draftmux.drafters.neural.growth import Sprout
from draftmux.drafters.neural.laws import Law, Vocabulary
from draftmux.generation import Generation
from draftmux.protocols import DraftRequest
from draftmux.testing.targets import scripted
from draftmux.types import Budget, Context, Draft, Scores, Tap

if TYPE_CHECKING:
    from draftmux.backends.masks import Feed
    from draftmux.drafters.neural.shape import Shape

Path = tuple[int, ...]
Logits = Callable[[Path], Sequence[float]]
CARRIED = Tap(0, "resid_post")


@define(eq=False)
class BookModel:
    """Reads a node's prefix out of the slots that its mask shows, and gives the law of that prefix.

    So a wrong mask, depth or slot gives the logits of another text. What a node hands on is the number of its prefix.
    `row` makes a row of logits of a prefix.
    """

    row: Logits
    slots: dict[str, list[tuple[int, int]]] = field(factory=dict)  # (token, depth) of what was fed
    numbers: dict[Path, int] = field(factory=dict)
    passes: int = 0
    carry: Tap = CARRIED

    def start(self, request: DraftRequest) -> int:
        return len(request.context.tokens)

    def catch_up(self, requests: Sequence[DraftRequest]) -> list[Scores]:
        self.slots |= {request.context.request_id: [] for request in requests}
        return [self._scores([tuple(request.context.tokens.tolist())]) for request in requests]

    def extend(self, requests: Sequence[DraftRequest], feeds: Sequence[Feed]) -> list[Scores]:
        self.passes += 1
        return [self._read(request, feed) for request, feed in zip(requests, feeds, strict=True)]

    def _read(self, request: DraftRequest, feed: Feed) -> Scores:
        held = self.slots[request.context.request_id]
        assert feed.start == self.start(request) and feed.before.tolist() == [depth for _, depth in held]
        held += zip(feed.tokens.tolist(), feed.depths.tolist(), strict=True)
        assert feed.mask.shape == (len(feed.tokens), len(held)) and feed.end == feed.start + len(held)
        prefixes = []
        for place, seen in enumerate(feed.mask):
            shown = [held[slot] for slot in np.flatnonzero(seen)]
            own = len(held) - len(feed.tokens) + place
            assert seen[own], "a node must see itself"
            assert sorted(depth for _, depth in shown) == list(range(int(feed.depths[place]) + 1))
            path = tuple(token for token, _ in sorted(shown, key=lambda slot: slot[1]))
            prefixes.append((*request.context.tokens.tolist(), *path))
            assert feed.states is not None and feed.states[place].tolist() == [self.numbers[prefixes[-1][:-1]]]
        return self._scores(prefixes)

    def _scores(self, prefixes: list[Path]) -> Scores:
        for prefix in prefixes:
            self.numbers.setdefault(prefix, len(self.numbers))
        logits = torch.tensor([list(self.row(prefix)) for prefix in prefixes], dtype=torch.float64)
        states = torch.tensor([[float(self.numbers[prefix])] for prefix in prefixes])
        return Scores(logits, {CARRIED: states})


def sprout(
    tokens: Sequence[int],
    size: int,
    shape: Shape,
    *,
    generation: Generation | None = None,
    budget: Budget | None = None,
    vocabulary: Vocabulary | None = None,
    room: int = 99,
    name: str = "request",
) -> Sprout:
    """A draft that begins after `tokens`, all of them the prompt, of a target with `size` ids."""
    committed = frozen_view(np.asarray(tokens, dtype=np.int64))
    generation = generation or Generation()
    context = Context(name, committed, len(committed), 99, {}, (), generation)
    target = scripted(lambda prefix: [0.0] * size, size)
    law = Law.of(context, target, vocabulary or Vocabulary(size), shape)
    return Sprout.plant(DraftRequest(context, None, budget or Budget()), law, shape, room)


@define(eq=False)
class Pool:
    """A tree by the book over full log-laws `logq(prefix) (V,)`: paths and their scores, in the order they are made."""

    logq: Logits
    committed: Path
    shape: Shape
    scores: dict[Path, float] = field(factory=lambda: {(): 0.0})

    def grow(self, levels: int) -> None:
        """Every node of the frontier gets children; the best of a level are the next frontier."""
        frontier: list[Path] = [()]
        for _ in range(levels):
            made = {path: score for node in frontier for path, score in self._children(node)}
            self.scores |= made
            best = sorted(made, key=lambda path: -made[path])[: self.shape.top_k]
            frontier = [path for path in made if path in best]

    def _children(self, node: Path) -> list[tuple[Path, float]]:
        row = list(self.logq((*self.committed, *node)))
        if max(row) < math.log(max(self.shape.min_confidence, 1e-300)):
            return []
        best = sorted(range(len(row)), key=lambda token: -row[token])[: self.shape.top_k]
        return [((*node, token), self.scores[node] + row[token]) for token in best if row[token] > -math.inf]

    def kept(self, budget: Budget) -> set[Path]:
        """The best, one after the other, as far as a node's parent is there and nodes and leaves fit the budget."""
        found: set[Path] = {()}
        for path in sorted(self.scores, key=lambda path: -self.scores[path]):
            more = found | {path}
            leaves = {path for path in more if not any(other[:-1] == path for other in more if other)}
            nodes = min(budget.max_nodes, self.shape.max_nodes)
            if path[:-1] in found and len(more) - 1 <= nodes and len(leaves) <= budget.max_branches:
                found = more
        return found - {()}


def paths(draft: Draft) -> set[Path]:
    """A draft's nodes, each as the tokens on its path."""
    return {tuple(draft.tokens[draft.path_to(node)].tolist()) for node in range(len(draft))}


def log_law(logits: Logits) -> Logits:
    """The log of the softmax of a law's logits."""
    return lambda prefix: torch.tensor(list(logits(prefix)), dtype=torch.float64).log_softmax(-1).tolist()


@pytest.fixture(scope="session")
def book() -> Any:
    """All of the above, since test files cannot import one another."""

    class Book:
        pass

    found: Any = Book()
    found.Model, found.Pool = BookModel, Pool
    found.sprout, found.paths, found.log_law = sprout, paths, log_law
    return found
