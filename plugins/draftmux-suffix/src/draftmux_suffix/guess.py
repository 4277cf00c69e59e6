"""From a point of a trie to a draft and its score. Knows tries and budgets; nothing of requests or match lengths.

Every continuation has a probability: the product of count(child) / count(node) on its way. The live end of a text is
one of the node's occurrences and has nothing after it, so what stood once before gives one half: a prior against
matches that are too rare. The score is the sum over the drafted tokens, an estimate of how many will be accepted.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count as numbers
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from draftmux.types import Budget, Draft

if TYPE_CHECKING:
    from draftmux_suffix.trie import Point, SuffixTrie

ROOT = -1


@define
class Guess:
    """A draft and its `score`, made from the last `match` tokens; `shared` when from texts of earlier requests."""

    tokens: list[int] = field(factory=list)
    parents: list[int] = field(factory=list)
    score: float = 0.0
    match: int = 0
    shared: bool = False

    def draft(self) -> Draft:
        """What the engine takes."""
        return Draft(self.tokens, self.parents)

    def add(self, token: int, parent: int, probability: float) -> int:
        """Draft one token more; its node."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.score += probability
        return len(self.tokens) - 1


def path(trie: SuffixTrie, point: Point, room: Budget, min_prob: float) -> Guess:
    """One chain: always the most frequent token, as long as the whole chain has `min_prob`."""
    guess, node, probability = Guess(), ROOT, 1.0
    for _ in range(min(room.max_nodes, room.max_depth) if room.max_branches else 0):
        follower = trie.likeliest(point)
        if follower is None:
            break
        token, count, after = follower
        probability *= count / trie.count(point)
        if probability < min_prob:
            break
        node, point = guess.add(token, node, probability), after
    return guess


def tree(trie: SuffixTrie, point: Point, room: Budget, min_prob: float) -> Guess:
    """The most probable nodes, each after its parent, as many as there is room for."""
    guess, inner, leaves = Guess(), {ROOT}, 0
    heap: list[tuple[float, int, int, int, int, Point]] = []  # -probability, order, token, parent, depth, point
    order = numbers()

    def push(node: int, depth: int, probability: float, point: Point) -> None:
        for token, count, after in islice(trie.followers(point), room.max_nodes if depth < room.max_depth else 0):
            likely = probability * (count / trie.count(point))
            if likely < min_prob:
                break
            heappush(heap, (-likely, next(order), token, node, depth + 1, after))

    push(ROOT, 0, 1.0, point)
    while heap and len(guess.tokens) < room.max_nodes:
        negative, _, token, parent, depth, after = heappop(heap)
        branches = leaves + (parent in inner)  # a first child only makes its parent's branch longer
        if branches <= room.max_branches:
            leaves = branches
            inner.add(parent)
            push(guess.add(token, parent, -negative), depth, -negative, after)
    return guess
