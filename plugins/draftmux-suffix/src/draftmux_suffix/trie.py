"""How often every short string of tokens stands in some texts, and what follows it, the most frequent first.

A trie over all suffixes of the texts, cut at `depth` tokens: the node of a string counts its occurrences, those that
end a text included. Knows texts; nothing of drafts, scores, budgets or requests.

A string that occurs once is a folded leaf: it names the text and the position where it ends, and what follows is read
from the text. A second occurrence unfolds it by one token. So text that never repeats takes about one node a token
instead of `depth`. Nodes are rows of flat arrays, and children are found by `node << 32 | token` in one dict per level
(integers only, so nothing for the garbage collector to visit, and no dict is large when it has to grow).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = 0
UNFOLDED = -1
NOBODY = -1

# A string of the trie: the deepest node on its way, and the tokens that it goes on inside a folded leaf.
Point = tuple[int, int]


@define(eq=False)
class Text:
    """One text of a trie. `matched[m - 1]` is the node of its last m tokens, for each m < depth that occurs twice."""

    number: int
    tokens: array[int] = field(factory=lambda: array("q"))
    matched: list[int] = field(factory=list)


class SuffixTrie:
    """Counts of all strings of up to `depth` tokens. O(depth) to append a token, O(T * depth) to remove a text."""

    __slots__ = (
        *("_count", "_token", "_level", "_folded", "_end", "_best", "_place", "_columns"),
        *("_ranked", "_children", "_free", "_texts", "_numbers", "depth"),
    )

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._count = array("i", [0])
        self._token = array("i", [NOBODY])
        self._level = array("i", [0])
        self._folded = array("i", [UNFOLDED])  # the text of a folded leaf
        self._end = array("i", [0])  # the position in that text where the string ends
        self._best = array("i", [NOBODY])  # the most frequent child, on ties the last that was counted
        self._place = array("i", [0])  # where the node stands in its parent's ranking
        self._columns = (self._count, self._token, self._level, self._folded, self._end, self._best, self._place)
        self._ranked: dict[int, list[int]] = {}  # of nodes with several children: children, the most frequent first
        self._children: list[dict[int, int]] = [{} for _ in range(depth)]  # by level of the parent
        self._free: list[int] = []
        self._texts: dict[int, Text] = {}
        self._numbers = 0

    def __len__(self) -> int:
        """Nodes, the root not counted."""
        return len(self._count) - 1 - len(self._free)

    def open(self) -> Text:
        """A new text, still empty."""
        text = Text(self._numbers)
        self._numbers += 1
        self._texts[text.number] = text
        return text

    def append(self, text: Text, tokens: Iterable[int]) -> None:
        """Let `text` grow. Only one text of a trie may: once another has been appended to, it is finished."""
        visit = self._visit
        for token in tokens:
            text.tokens.append(token)
            reached = [visit(node, token, text) for node in (ROOT, *text.matched)]
            text.matched = [node for node in reached if node != NOBODY]

    def remove(self, text: Text) -> None:
        """Subtract every count of a text, and drop the nodes that only it had."""
        tokens, depth = text.tokens, self.depth
        for start in range(len(tokens)):
            node = ROOT
            for token in tokens[start : start + depth]:
                child = self._children[self._level[node]][node << 32 | token]
                folded = self._folded[child] != UNFOLDED
                self._lower(node, child)
                if folded:
                    break
                node = child
        del self._texts[text.number]

    def count(self, point: Point) -> int:
        """Occurrences of the point's string."""
        return self._count[point[0]]

    def step(self, point: Point, token: int) -> Point | None:
        """The point one token on; None when the longer string does not occur or is longer than `depth`."""
        node, ahead = point
        if self._folded[node] != UNFOLDED:
            return (node, ahead + 1) if self._follower(node, ahead) == token else None
        if self._level[node] == self.depth:
            return None
        child = self._children[self._level[node]].get(node << 32 | token)
        return None if child is None else (child, 0)

    def followers(self, point: Point) -> Iterator[tuple[int, int, Point]]:
        """What follows a point's string, the most frequent first: token, count, the point one token on."""
        first = self.likeliest(point)
        if first is None:
            return
        yield first
        best = self._best[point[0]]
        for child in self._ranked.get(point[0], ()):
            if child != best:
                yield self._token[child], self._count[child], (child, 0)

    def likeliest(self, point: Point) -> tuple[int, int, Point] | None:
        """The first of `followers`; None when nothing follows."""
        node, ahead = point
        if self._folded[node] != UNFOLDED:
            token = self._follower(node, ahead)
            return None if token == NOBODY else (token, 1, (node, ahead + 1))
        best = self._best[node]
        return None if best == NOBODY else (self._token[best], self._count[best], (best, 0))

    def find(self, string: Iterable[int]) -> Point | None:
        """The point of a string; None when it does not occur or is longer than `depth`."""
        point = (ROOT, 0)
        for token in string:
            after = self.step(point, token)
            if after is None:
                return None
            point = after
        return point

    def matches(self, tail: Sequence[int]) -> list[Point]:
        """The points of the last 1, 2, ... tokens of `tail`, as long as they occur. O(depth^2), whatever the texts."""
        found: list[Point] = []
        for size in range(1, min(len(tail), self.depth - 1) + 1):
            point = self.find(tail[-size:])
            if point is None:
                break
            found.append(point)
        return found

    def _follower(self, node: int, ahead: int) -> int:
        """The token `ahead` tokens behind the end of a folded leaf; NOBODY past `depth` or the text."""
        tokens, position = self._texts[self._folded[node]].tokens, self._end[node] + 1 + ahead
        return tokens[position] if self._level[node] + ahead < self.depth and position < len(tokens) else NOBODY

    def _visit(self, node: int, token: int, text: Text) -> int:
        """Count one more `token` after a node. The child, if it was there before and can go on; otherwise NOBODY."""
        level = self._level[node]
        child = self._children[level].get(node << 32 | token, NOBODY)
        if child == NOBODY:
            self._add(node, token, text, len(text.tokens) - 1)
            return NOBODY
        self._raise(node, child)
        if self._folded[child] != UNFOLDED:
            self._unfold(child)
        return child if level + 1 < self.depth else NOBODY

    def _unfold(self, node: int) -> None:
        """Make the one child of a folded leaf a node of its own."""
        text, after = self._texts[self._folded[node]], self._end[node] + 1
        self._folded[node] = UNFOLDED
        if after < len(text.tokens):
            self._add(node, text.tokens[after], text, after)

    def _add(self, parent: int, token: int, text: Text, end: int) -> None:
        level = self._level[parent] + 1
        node = self._row(token, level, UNFOLDED if level == self.depth else text.number, end)
        self._children[level - 1][parent << 32 | token] = node
        if parent != ROOT:  # nobody asks what follows the empty string
            self._rank(parent, node)

    def _row(self, token: int, level: int, folded: int, end: int) -> int:
        """A row with count 1, a used one if there is any."""
        values = zip(self._columns, (1, token, level, folded, end, NOBODY, 0), strict=True)
        if not self._free:
            for column, value in values:
                column.append(value)
            return len(self._count) - 1
        row = self._free.pop()
        for column, value in values:
            column[row] = value
        return row

    def _rank(self, parent: int, node: int) -> None:
        """Put a new child, which occurs once, at the end of the ranking."""
        best = self._best[parent]
        if best != NOBODY:
            ranked = self._ranked.setdefault(parent, [best])
            self._place[node] = len(ranked)
            ranked.append(node)
        if best == NOBODY or self._count[best] == 1:
            self._best[parent] = node

    def _raise(self, parent: int, child: int) -> None:
        count, seen = self._count, self._count[child]
        ranked, place = self._ranked.get(parent), self._place[child]
        if ranked is not None and place and count[ranked[place - 1]] == seen:  # otherwise it stays where it is
            self._swap(ranked, child, bisect_left(ranked, -seen, hi=place, key=lambda node: -count[node]))
        count[child] = seen + 1
        if parent != ROOT and seen >= count[self._best[parent]] - 1:
            self._best[parent] = child

    def _lower(self, parent: int, child: int) -> None:
        count, ranked = self._count, self._ranked.get(parent)
        if ranked is not None:
            self._swap(ranked, child, bisect_right(ranked, -count[child], key=lambda node: -count[node]) - 1)
        count[child] -= 1
        if count[child] == 0:
            self._drop(parent, child, ranked)
        if ranked is not None and self._best[parent] == child and count[ranked[0]] > count[child]:
            self._best[parent] = ranked[0]

    def _swap(self, ranked: list[int], child: int, place: int) -> None:
        """Exchange a child with the one at `place`, which has the same count."""
        other, old = ranked[place], self._place[child]
        ranked[old], ranked[place] = other, child
        self._place[other], self._place[child] = old, place

    def _drop(self, parent: int, child: int, ranked: list[int] | None) -> None:
        """Forget a child that occurs no more; it ranks last."""
        del self._children[self._level[parent]][parent << 32 | self._token[child]]
        self._free.append(child)
        if ranked is None:
            self._best[parent] = NOBODY
            return
        ranked.pop()
        if len(ranked) == 1:
            del self._ranked[parent]
