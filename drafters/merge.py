"""One tree out of the drafts of several drafters. Knows their names and their drafts, not how they guess."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, field, frozen

from draftmux.drafting import SequenceDrafter
from draftmux.errors import PluginError, did_you_mean
from draftmux.options import option
from draftmux.protocols import DraftRequest
from draftmux.tree import ROOT
from draftmux.types import Budget, Context, Draft, Emits, Needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftmux.protocols import Drafter, Resources
    from draftmux.types import Step


@frozen
class Merge(SequenceDrafter):
    """Asks several drafters and merges their trees as tries under one budget, taking turns."""

    of: list[str] = option("names of the drafters to merge, two or more; the first is asked first")
    max_nodes: int = option("drafted nodes of the merged tree at most", default=64, minimum=1)

    def __attrs_post_init__(self) -> None:
        if len(self.of) < 2 or len(set(self.of)) < len(self.of):
            raise ValueError(f"'of' must name at least two different drafters: {self.of}")

    def uses(self) -> tuple[str, ...]:
        """The drafters to merge."""
        return tuple(self.of)

    def bind(self, resources: Resources) -> Drafter:
        """Take the drafters; PluginError when one is not there."""
        for name in self.of:
            if name not in resources.drafters:
                raise PluginError(f"merge: unknown drafter '{name}'{did_you_mean(name, resources.drafters)}")
        return MergedDrafter(self.uses(), tuple(resources.drafters[name] for name in self.of), self.max_nodes)

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """Never: there is nobody to ask before `bind`."""
        raise PluginError("merge has no drafters yet; call `bind` and use what it returns")


@frozen
class MergedDrafter:
    """A bound merge. Its state is the tuple of the drafters' own states."""

    needs: ClassVar[Needs] = Needs()
    emits: ClassVar[Emits] = Emits(tree=True)

    names: tuple[str, ...]
    drafters: tuple[Drafter, ...]
    max_nodes: int

    def uses(self) -> tuple[str, ...]:
        """The drafters that are merged."""
        return self.names

    def bind(self, resources: Resources) -> MergedDrafter:
        """Bound already."""
        return self

    def begin(self, context: Context) -> tuple[Any, ...]:
        """Begin with every drafter."""
        return tuple(drafter.begin(context) for drafter in self.drafters)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Ask every drafter once for the whole batch, and merge what they say for each sequence."""
        budgets = [request.budget.within(Budget(max_nodes=self.max_nodes)) for request in requests]
        answers = [self._ask(turn, requests, budgets) for turn in range(len(self.drafters))]
        return [
            merge_drafts(self.names, [answer[row] for answer in answers], budget) for row, budget in enumerate(budgets)
        ]

    def _ask(self, turn: int, requests: Sequence[DraftRequest], budgets: Sequence[Budget]) -> Sequence[Draft]:
        asked = [DraftRequest(r.context, r.state[turn], b) for r, b in zip(requests, budgets, strict=True)]
        try:
            drafts = self.drafters[turn].propose(asked)
        except Exception as error:
            raise PluginError(f"its drafter '{self.names[turn]}' failed: {type(error).__name__}: {error}") from error
        if len(drafts) != len(requests):
            counts = f"{len(requests)} requests with {len(drafts)} drafts"
            raise PluginError(f"drafter '{self.names[turn]}' answered {counts}; give one each")
        return drafts

    def observe(self, state: tuple[Any, ...], step: Step) -> None:
        """Tell every drafter."""
        for drafter, own in zip(self.drafters, state, strict=True):
            drafter.observe(own, step)


def merge_drafts(names: Sequence[str], drafts: Sequence[Draft], budget: Budget) -> Draft:
    """Merge trees as tries; `sources` names, per node, the first of `names` whose draft has it.

    The drafters take turns, and a turn adds one node: the drafter's next, in its own order, that is not there yet. So
    each gets an equal share of a short budget, spends it on what it put first, and leaves the others what it does not
    need. A node shared by several costs nobody a second turn. `q` is dropped: a merged node was drawn from no single
    law, so it is a point mass, which is all that exact-match acceptance asks for.
    """
    trie = _Trie(budget)
    turns = deque(_turns(trie, owner, draft) for owner, draft in enumerate(drafts))
    while turns:
        turn = turns.popleft()
        if next(turn, False):
            turns.append(turn)
    return Draft(trie.tokens, trie.parents, sources=tuple(names[owner] for owner in trie.owners))


def _turns(trie: _Trie, owner: int, draft: Draft) -> Iterator[bool]:
    """Add one drafter's nodes to the trie, pausing after each that was new."""
    place = {ROOT: ROOT}
    for node, (token, parent) in enumerate(zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True)):
        if parent not in place:
            continue  # its parent found no room
        size = len(trie.tokens)
        found = trie.add(place[parent], token, owner)
        if found is not None:
            place[node] = found
        if len(trie.tokens) > size:
            yield True


@define
class _Trie:
    """A growing draft tree without equal siblings, kept within a budget. `owners`: per node, the first to guess it."""

    budget: Budget
    tokens: list[int] = field(factory=list)
    parents: list[int] = field(factory=list)
    owners: list[int] = field(factory=list)
    depths: dict[int, int] = field(factory=lambda: {ROOT: 0})
    children: dict[tuple[int, int], int] = field(factory=dict)
    leaves: set[int] = field(factory=set)

    def add(self, parent: int, token: int, owner: int) -> int | None:
        """The child of `parent` with this token, made if it is not there; None when the budget has no room for it."""
        found = self.children.get((parent, token))
        if found is not None:
            self.owners[found] = min(owner, self.owners[found])
            return found
        node, depth, leaves = len(self.tokens), self.depths[parent] + 1, self.leaves - {parent}
        limit = self.budget
        if node >= limit.max_nodes or depth > limit.max_depth or len(leaves) >= limit.max_branches:
            return None
        self.tokens.append(token)
        self.parents.append(parent)
        self.owners.append(owner)
        self.depths[node] = depth
        self.children[parent, token] = node
        self.leaves = leaves | {node}
        return node
