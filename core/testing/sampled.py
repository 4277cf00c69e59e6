"""Drafters that really sample, written against a source of noise, so that tests can enumerate what they draw.

They know a draft law q and nothing of the target. Every row of q is the law its node was drawn from, and no decision
to submit a token looks at that token's own value first: what verifiers that weigh p against q rely on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any, Protocol, final

from attrs import define, field, frozen

from draftmux.drafting import SequenceDrafter
from draftmux.noise import Stream, draw, stream_seed
from draftmux.tree import ROOT
from draftmux.types import Budget, Context, Draft, Emits

if TYPE_CHECKING:
    from torch import Tensor

DraftLaw = Callable[[tuple[int, ...]], Sequence[float]]  # prefix -> probabilities (V,)
Copies = Callable[[tuple[int, ...]], Sequence[int]]  # prefix -> tokens that are guessed without drawing


class Noise(Protocol):
    """Random decisions of one step of a drafter. `law (V,)` need not be normalised."""

    def draw(self, law: Tensor, key: int) -> int:
        """A token drawn independently of the target. Ask once a step with each `key`, usually the node."""
        ...

    def pick(self, law: Tensor, depth: int) -> int:
        """A token drawn with the noise by which the target itself picks, `depth` (from 0) after the root."""
        ...


@frozen
class KeyedNoise:
    """Noise as the engine makes it: a function of the request's seed, the root's position `root` and the key."""

    seed: int
    root: int

    def draw(self, law: Tensor, key: int) -> int:
        """From the drafters' own stream."""
        return draw(law, stream_seed(self.seed, Stream.DRAFT, key + 1), self.root)

    def pick(self, law: Tensor, depth: int) -> int:
        """From the target's stream."""
        return draw(law, self.seed, self.root + depth)


class SampledDrafter(SequenceDrafter):
    """A drafter whose every random decision goes through a `Noise`."""

    @abstractmethod
    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        """The draft for one sequence, within `budget`."""

    @final
    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """The draft that the request's seed gives."""
        return self.grow(context, budget, KeyedNoise(context.generation.seed, len(context.tokens)))


@define(eq=False)
class Grown:
    """A draft while it grows; `rows` are the laws its nodes were drawn from, `(V,)` each."""

    prefix: tuple[int, ...]
    tokens: list[int] = field(factory=list)
    parents: list[int] = field(factory=list)
    rows: list[Tensor] = field(factory=list)

    def add(self, parent: int, token: int, row: Tensor) -> int:
        """A new node; returns its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.rows.append(row)
        return len(self.tokens) - 1

    def before(self, node: int) -> tuple[int, ...]:
        """Ids up to `node`, itself included."""
        return self.prefix if node == ROOT else (*self.before(self.parents[node]), self.tokens[node])

    def draft(self) -> Draft:
        """The tree with its q."""
        import torch

        return Draft(self.tokens, self.parents, torch.stack(self.rows)) if self.rows else Draft.empty()


@frozen(eq=False)
class SampledTree(SampledDrafter):
    """Every node of depth d gets `copies` of its prefix as children, then `widths[d]` tokens drawn from `law`.

    With `replace` draws of siblings are independent, so two may be equal; without, each is drawn from what the earlier
    ones left. `unsure`: nothing is drawn from a law whose best token has less than this. `unlikely`: a drawn token with
    less than this stays, but gets no further siblings and no children.
    """

    law: DraftLaw
    widths: tuple[int, ...]
    replace: bool = True
    copies: Copies | None = None
    unsure: float = 0.0
    unlikely: float = 0.0

    @property
    def emits(self) -> Emits:  # type: ignore[override]
        """A chain if nothing branches; always with q."""
        return Emits(tree=self.copies is not None or max(self.widths) > 1, q=True)

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        """Level by level."""
        grown, level = Grown(tuple(context.tokens.tolist())), [ROOT]
        for width in self._within(budget):
            level = [node for parent in level for node in self._children(grown, parent, width, noise)]
        return grown.draft()

    def _children(self, grown: Grown, parent: int, width: int, noise: Noise) -> list[int]:
        """Adds the children of `parent`; returns those that may have children of their own."""
        import torch

        prefix, fertile = grown.before(parent), []
        law = torch.tensor(list(self.law(prefix)), dtype=torch.float64)
        for token in self.copies(prefix) if self.copies is not None else ():
            fertile.append(grown.add(parent, token, _one_hot(token, law)))
        for _ in range(width):
            if float(law.sum()) <= 0 or float(law.max()) < self.unsure:
                break
            token = noise.draw(law, len(grown.tokens))
            node = grown.add(parent, token, law)
            if float(law[token]) < self.unlikely:
                break
            fertile.append(node)
            if not self.replace:
                law = _without(law, token)
        return fertile

    def _within(self, budget: Budget) -> tuple[int, ...]:
        """Widths by depth that keep the budget whatever is drawn; without room for a tree, a chain without copies."""
        copied = len(self.copies((0,))) if self.copies is not None else 0
        widths = [width + copied for width in self.widths[: budget.max_depth]]
        if sum(accumulate(widths, mul)) <= budget.max_nodes and prod(widths) <= budget.max_branches:
            return self.widths[: len(widths)]
        return (1,) * min(len(widths), budget.max_nodes) if not copied else ()


@frozen(eq=False)
class Coupled(SampledDrafter):
    """A chain drawn with the noise by which the target picks, so that they agree as often as p and q are alike.

    It has no q: a later step draws with some of the same numbers again, when a verifier may have looked at them, so
    its tokens are not drawn from `law` given all that happened. As point masses they are lawful whatever they are.
    Source: Gumbel coupling (Daliri, Musco, Suresh, 2024).
    """

    emits = Emits(tree=False)

    law: DraftLaw
    length: int = 3

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        """Token by token."""
        import torch

        tokens: tuple[int, ...] = ()
        for depth in range(min(self.length, budget.max_depth, budget.max_nodes)):
            law = torch.tensor(list(self.law((*context.tokens.tolist(), *tokens))), dtype=torch.float64)
            tokens = (*tokens, noise.pick(law, depth))
        return Draft.chain(tokens)


@frozen(eq=False)
class Likeliest(SampledDrafter):
    """The `widths[d]` likeliest tokens of `law` after every node of depth d, without q: nothing is drawn."""

    law: DraftLaw
    widths: tuple[int, ...]

    @property
    def emits(self) -> Emits:  # type: ignore[override]
        """Point masses."""
        return Emits(tree=max(self.widths) > 1)

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        """Level by level, the best first, cut to the budget."""
        level: list[tuple[int, ...]] = [()]
        prefix = tuple(context.tokens.tolist())
        for width in self.widths[: budget.max_depth]:
            level = [(*path, token) for path in level for token in self._best((*prefix, *path), width)]
        return Draft.from_candidates(level, budget)

    def _best(self, prefix: tuple[int, ...], width: int) -> list[int]:
        law = self.law(prefix)
        return sorted(range(len(law)), key=lambda token: (-law[token], token))[:width]


def _one_hot(token: int, law: Tensor) -> Tensor:
    row = law.new_zeros(len(law))
    row[token] = 1
    return row


def _without(law: Tensor, token: int) -> Tensor:
    """`law` given that the token is not drawn; nothing at all if that was all it had."""
    rest = law.clone()
    rest[token] = 0
    mass = float(rest.sum())
    return rest / mass if mass > 0 else rest


def _next(prefix: tuple[int, ...]) -> tuple[int]:
    """A copied candidate for toy laws of three tokens or more: one id on."""
    return ((prefix[-1] + 1) % 3,)


CHAINS: dict[str, Callable[[DraftLaw], SampledDrafter]] = {
    "chain": lambda q: SampledTree(q, (1, 1, 1)),
    "chain that stops before unsure laws": lambda q: SampledTree(q, (1, 1, 1), unsure=0.5),
    "chain that stops after unlikely tokens": lambda q: SampledTree(q, (1, 1, 1), unlikely=0.35),
    "coupled chain": Coupled,
    "chain of point masses": lambda q: Likeliest(q, (1, 1, 1)),
}
TREES: dict[str, Callable[[DraftLaw], SampledDrafter]] = {
    "siblings": lambda q: SampledTree(q, (3,)),
    "distinct siblings": lambda q: SampledTree(q, (3,), replace=False),
    "branches": lambda q: SampledTree(q, (2, 1)),
    "distinct branches": lambda q: SampledTree(q, (2, 1), replace=False),
    "tree": lambda q: SampledTree(q, (2, 2)),
    "distinct tree": lambda q: SampledTree(q, (2, 2), replace=False),
    "tree that stops": lambda q: SampledTree(q, (2, 2), unsure=0.45, unlikely=0.35),
    "copied and sampled tree": lambda q: SampledTree(q, (1, 1), copies=_next),
    "copied and sampled siblings": lambda q: SampledTree(q, (2,), replace=False, copies=_next),
    "tree of point masses": lambda q: Likeliest(q, (2, 2)),
}
KINDS = {**CHAINS, **TREES}
