"""Random decisions, enumerated: code that draws from here is run once for every course its decisions can take.

Knows how the engine keys its noise. A number that is used twice answers the second time from what the first use left of
it, so code that reuses one shows exactly what that does to its law.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from attrs import define, field, frozen

from draftmux.noise import Stream
from draftmux.sampling import Sampler, SamplingRule
from draftmux.tree import ROOT

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.protocols import ConstraintState
    from draftmux.types import Context, Draft, Scores

T = TypeVar("T")
Intervals = Mapping[Hashable, tuple[float, float]]

NARROW = 1e-13  # an interval that only rounding leaves


@define(eq=False)
class Chances:
    """Uniform numbers on (0, 1), each known only as far as the decisions taken on it tell.

    A number is named by its key, so one that is used twice answers the second time from what the first left of it.
    `replay` says which way to go at the first decisions; from there on always the first way.
    """

    intervals: dict[Hashable, tuple[float, float]]
    replay: tuple[int, ...] = ()
    taken: list[int] = field(factory=list)
    ways: list[int] = field(factory=list)  # at each decision
    probability: float = 1.0

    def below(self, name: Hashable, bound: float) -> bool:
        """Whether the number is below `bound`."""
        return not self._divide(name, [bound])

    def choose(self, name: Hashable, law: Tensor) -> int:
        """The token whose part of the number's range, as long as its share of `law (V,)`, the number lies in."""
        shares = law.double().cumsum(0)
        if float(shares[-1]) <= 0:
            return 0  # as in production
        return self._divide(name, (shares / shares[-1])[:-1].tolist())

    def _divide(self, name: Hashable, bounds: Sequence[float]) -> int:
        """Which of the parts that `bounds` cut (0, 1) into holds the number."""
        low, high = self.intervals.get(name, (0.0, 1.0))
        ends = [min(max(bound, low), high) for bound in bounds]
        parts = [
            (index, part)
            for index, part in enumerate(zip([low, *ends], [*ends, high], strict=True))
            if part[1] - part[0] > NARROW
        ]
        decision = len(self.taken)
        way = self.replay[decision] if decision < len(self.replay) else 0
        index, part = parts[way]
        self.taken.append(way)
        self.ways.append(len(parts))
        self.intervals[name] = part
        self.probability *= (part[1] - part[0]) / (high - low)
        return index


@frozen(eq=False)
class Course(Generic[T]):
    """One course that random decisions can take: its probability and what it leaves of the numbers."""

    result: T
    probability: float
    intervals: Intervals


def courses(work: Callable[[Chances], T], intervals: Intervals) -> Iterator[Course[T]]:
    """`work` once for every course of its decisions."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        chances = Chances(dict(intervals), pending.pop())
        result = work(chances)
        for decision in range(len(chances.replay), len(chances.taken)):
            before = tuple(chances.taken[:decision])
            pending += [(*before, way) for way in range(1, chances.ways[decision])]
        yield Course(result, chances.probability, chances.intervals)


@frozen
class EnumeratedNoise:
    """A drafter's noise at the root position `root`."""

    chances: Chances
    root: int

    def draw(self, law: Tensor, key: int) -> int:
        """From the drafters' own numbers."""
        return self.chances.choose((Stream.DRAFT, self.root, key), law)

    def pick(self, law: Tensor, depth: int) -> int:
        """From the target's numbers."""
        return self.chances.choose((Stream.TOKEN, self.root + depth), law)


@define(eq=False)
class EnumeratedSampler(Sampler):
    """The production sampler with its noise enumerated, and processed logits kept by prefix."""

    chances: Chances = field(kw_only=True)
    known: dict[tuple[int, ...], Tensor] = field(kw_only=True)

    def pick(self, node: int) -> int:
        """A draw from p that is keyed by position; nothing is random when greedy."""
        if self.rule.greedy:
            return super().pick(node)
        law = self.p(node)
        return 0 if node in self.dead_ends else self.chances.choose((Stream.TOKEN, self.position(node)), law)

    def bernoulli(self, probability: float, key: int) -> bool:
        """Keyed as in production."""
        return self.chances.below((Stream.ACCEPT, len(self.context.tokens), key), probability)

    def draw(self, law: Tensor, key: int = ROOT) -> int:
        """Keyed as in production."""
        return self.chances.choose((Stream.RESIDUAL, len(self.context.tokens), key), law)

    def _process(self, node: int) -> Tensor:
        prefix = (*self.context.tokens.tolist(), *self.draft.tokens[self.draft.path_to(node)].tolist())
        if prefix not in self.known:
            self.known[prefix] = super()._process(node)
        return self.known[prefix]


@frozen(eq=False)
class EnumeratedRule(SamplingRule):
    """A rule whose sampler enumerates; `chances` are those of the course that runs now."""

    known: dict[tuple[int, ...], Tensor] = field(factory=dict, kw_only=True)
    chances: Chances = field(factory=lambda: Chances({}), kw_only=True)

    def at(self, context: Context, draft: Draft, scores: Scores, constraint: ConstraintState | None = None) -> Sampler:
        """A sampler of the course that runs now."""
        constrained = SamplingRule.at(self, context, draft, scores, constraint).constrained
        return EnumeratedSampler(self, context, draft, scores, constrained, chances=self.chances, known=self.known)
