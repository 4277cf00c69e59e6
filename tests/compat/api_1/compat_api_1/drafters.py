"""Plugin API 1: drafters by each base class, and by none. Written once, and never edited again; see the package."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import define, field, frozen

from draftmux.drafting import SequenceDrafter, TokenDrafter
from draftmux.options import option
from draftmux.types import Draft, Emits, Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from draftmux.protocols import Drafter, DraftRequest, Resources
    from draftmux.types import Budget, Context, Step


@frozen
class Copy(TokenDrafter):
    """What came after each earlier occurrence of the last token, the latest first."""

    length: int = option("tokens to copy", default=3, minimum=1, maximum=64)

    def draft(self, tokens: NDArray[Any], budget: Budget) -> list[list[int]]:
        earlier = (tokens[:-1] == tokens[-1]).nonzero()[0][::-1]
        found = [tokens[at + 1 : at + 1 + self.length].tolist() for at in earlier[: budget.max_branches]]
        return [candidate for candidate in found if candidate]


@define
class Habits:
    """What one sequence has said after each token, and what is not counted yet."""

    after: defaultdict[int, Counter[int]]
    last: int
    queue: list[int] = field(factory=list)

    def catch_up(self) -> None:
        for token in self.queue:
            self.after[self.last][token] += 1
            self.last = token
        self.queue.clear()


@frozen
class Memory(SequenceDrafter):
    """The likeliest chain, by counts of this sequence's own pairs of tokens."""

    emits: ClassVar[Emits] = Emits(tree=False)

    def begin(self, context: Context) -> Habits:
        first, *others = context.tokens.tolist()
        return Habits(defaultdict(Counter), first, others)

    def propose_one(self, context: Context, state: Habits, budget: Budget) -> Draft:
        state.catch_up()
        assert state.last == int(context.tokens[-1])
        chain: list[int] = []
        token = state.last
        while state.after[token] and len(chain) < min(budget.max_depth, budget.max_nodes):
            token = state.after[token].most_common(1)[0][0]
            chain.append(token)
        return Draft.chain(chain) if chain else Draft.empty()

    def observe(self, state: Habits, step: Step) -> None:
        assert len(step.committed) <= len(step.acceptance.path) + 1
        state.queue += step.committed


@frozen
class Drawn:
    """Two siblings and a child, each with the law that it was drawn from: all of the mass on itself."""

    first: int = option("a token id", default=0, minimum=0)
    second: int = option("another one", default=1, minimum=0)
    _size: int = 0

    needs: ClassVar[Needs] = Needs()
    emits: ClassVar[Emits] = Emits(tree=True, q=True)

    def uses(self) -> tuple[str, ...]:
        return ()

    def bind(self, resources: Resources) -> Drafter:
        assert resources.backend is not None
        return Drawn(first=self.first, second=self.second, size=resources.backend.vocab_size)

    def begin(self, context: Context) -> None:
        return None

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._draft(request.budget) for request in requests]

    def observe(self, state: None, step: Step) -> None:
        pass

    def _draft(self, budget: Budget) -> Draft:
        import torch

        if budget.max_nodes < 3 or budget.max_depth < 2 or budget.max_branches < 2:
            return Draft.empty()
        tokens = [self.first, self.second, self.first]
        return Draft(tokens=tokens, parents=[-1, -1, 1], q=torch.eye(self._size)[tokens])
