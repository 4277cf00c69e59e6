"""What travels along the loop: one frozen object at each arrow of `engine/step.py`.

Tensors appear only as annotations, so that command-line start-up, `check` and `plugins` never import torch.
p is the target's law, q the draft's. V is the vocabulary size, N the number of drafted nodes, d a hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from attrs import evolve, field, frozen
from attrs.validators import ge

from draftmux import tree
from draftmux.arrays import int_vector, own, probabilities
from draftmux.errors import DraftError
from draftmux.taps import MIDDLE, TAP_KINDS, Reading, Tap

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from draftmux.generation import Generation

UNLIMITED = 1 << 30
AUTO = UNLIMITED - 1  # a size that whoever does not know its meaning takes for no limit


@frozen
class Budget:
    """How much one draft may hold: nodes in all (`AUTO`: as many as pay so far), nodes on a path, branches (leaves)."""

    max_nodes: int = field(
        default=UNLIMITED,
        validator=ge(0),
        metadata={"minimum": 0, "words": {"auto": AUTO}, "help": "drafted nodes in all; auto: as many as pay so far"},
    )
    max_depth: int = field(
        default=UNLIMITED, validator=ge(0), metadata={"minimum": 0, "help": "drafted nodes on one path"}
    )
    max_branches: int = field(
        default=UNLIMITED, validator=ge(0), metadata={"minimum": 0, "help": "branches (leaves) of the tree"}
    )

    def within(self, other: Budget) -> Budget:
        """The smaller of both in every respect."""
        return Budget(
            min(self.max_nodes, other.max_nodes),
            min(self.max_depth, other.max_depth),
            min(self.max_branches, other.max_branches),
        )


@frozen(eq=False)
class Draft:
    """A tree of guesses for the tokens after the root.

    `tokens (N,)`, `parents (N,)` with parents before children and -1 for the root. `q (N, V)`, only if tokens were
    sampled: row i is the law that node i was really drawn from, given its earlier siblings; one-hot for a token that
    was not sampled (a copied one beside sampled ones). With q, siblings stand in the order in which they were drawn,
    and two of them may be equal. Without q every node is a point mass. `sources`, only in merged drafts: per node the
    name of the drafter that guessed it. `confidence (N,)`, if the drafter has one: how likely it holds every node after
    its parent to be (where it draws with noise, with that noise); nothing but a router reads it. Raises DraftError when
    the arrays are not a tree.
    """

    tokens: NDArray[np.int64] = field(converter=int_vector)
    parents: NDArray[np.int64] = field(converter=int_vector)
    q: Tensor | None = field(default=None, converter=own)
    sources: tuple[str, ...] | None = None
    confidence: NDArray[np.float64] | None = field(default=None, converter=probabilities)

    def __attrs_post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise DraftError(f"a draft has {len(self.tokens)} tokens but {len(self.parents)} parents; give one each")
        wrong = (self.parents >= np.arange(len(self.parents))) | (self.parents < tree.ROOT)
        if wrong.any():
            node = int(wrong.argmax())
            raise DraftError(
                f"node {node} has parent {self.parents[node]}; a parent must come before its child, or be -1"
            )
        if self.sources is not None and len(self.sources) != len(self.tokens):
            raise DraftError(f"a draft has {len(self.tokens)} tokens but {len(self.sources)} sources; give one each")
        if self.confidence is not None and len(self.confidence) != len(self.tokens):
            raise DraftError(f"a draft has {len(self.tokens)} tokens but {len(self.confidence)} confidences")

    @classmethod
    def empty(cls) -> Self:
        """No guess: the step decodes one token, as plain decoding does."""
        return cls((), ())

    @classmethod
    def chain(cls, tokens: ArrayLike, q: Tensor | None = None) -> Self:
        """One branch."""
        ids = int_vector(tokens)
        return cls(ids, np.arange(-1, len(ids) - 1), q)

    @classmethod
    def from_candidates(cls, candidates: Sequence[Sequence[int]], budget: Budget | None = None) -> Self:
        """Several branches from the root, the best first; shared prefixes become shared nodes. Cut to `budget`."""
        limit = budget or Budget()
        try:
            kept = candidates[: limit.max_branches]
            tokens, parents = tree.merge_candidates(kept, limit.max_nodes, limit.max_depth)
        except (TypeError, LookupError) as error:
            raise DraftError(f"candidates must be a list of lists of token ids: {error}") from error
        return cls(tokens, parents)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Depth of every node, `(N,)`, from 1."""
        return tree.depths(self.parents)

    @cached_property
    def children(self) -> dict[tuple[int, int], int]:
        """(parent, token) -> node; the first one, should siblings repeat a token."""
        found: dict[tuple[int, int], int] = {}
        for node, key in enumerate(zip(self.parents.tolist(), self.tokens.tolist(), strict=True)):
            found.setdefault(key, node)
        return found

    @cached_property
    def siblings(self) -> dict[int, list[int]]:
        """Parent -> its children in the order of nodes; parents without children are left out."""
        found: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents.tolist()):
            found.setdefault(parent, []).append(node)
        return found

    def source(self, node: int, default: str) -> str:
        """Name of the drafter that guessed `node`."""
        return self.sources[node] if self.sources is not None else default

    def path_to(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`; empty for the root (-1)."""
        path: list[int] = []
        while node != tree.ROOT:
            path.append(node)
            node = int(self.parents[node])
        return path[::-1]


@frozen(eq=False)
class Scores:
    """What the target says of one root and its draft: `logits (N+1, V)`, and per tap the states `(N+1, d)`.

    Row 0 belongs to the root and row i+1 to node i.
    """

    logits: Tensor
    taps: Mapping[Tap, Tensor] = field(factory=dict)

    def last(self) -> Scores:
        """The last row alone."""
        return Scores(self.logits[-1:], {tap: states[-1:] for tap, states in self.taps.items()})


@frozen
class Acceptance:
    """A verifier's decision: nodes of the accepted path in order, and the token that follows them.

    `logprobs`, if asked for: the target's log-probability of every path token, then of `token`.
    """

    path: tuple[int, ...]
    token: int
    logprobs: tuple[float, ...] | None = None


@frozen
class Choice:
    """A router's decision: which drafter drafts how much. `drafter=None` decodes plainly.

    When the draft comes back empty, the drafters in `otherwise` are asked in order, within `otherwise_budget`, or the
    same budget if there is none. Those in `beside` are asked in any
    case, each within its budget, for the router to see what they would have drafted; the target does not. One that was
    asked in turn is not asked again: its draft within `budget` is shown.
    """

    drafter: str | None
    budget: Budget = field(factory=Budget)
    otherwise: tuple[str, ...] = ()
    beside: Mapping[str, Budget] = field(factory=dict, hash=False)
    otherwise_budget: Budget | None = None

    @property
    def candidates(self) -> tuple[str, ...]:
        """Every drafter that may be asked, in order."""
        return () if self.drafter is None else (self.drafter, *self.otherwise)

    def budget_of(self, name: str) -> Budget:
        """That of one of the candidates."""
        return self.budget if name == self.drafter else self.otherwise_budget or self.budget


@frozen(eq=False)
class Step:
    """The record of one loop for one sequence.

    `drafter` is the one whose draft was scored (None: nobody drafted). `draft` is what was scored: a request's
    constraint may have taken nodes off the drafter's own, so follow `committed`, not node numbers of your own.
    `committed` are the token ids that were kept, cut at the first stop. `acceptance` is the uncut decision. `taps` hold
    the committed rows `(len(committed), d)`: root, then accepted path. `seconds` per stage, for the whole batch that
    stepped together. `beside`: the drafts that the choice wanted to see, by drafter.
    """

    choice: Choice
    drafter: str | None
    draft: Draft
    acceptance: Acceptance
    committed: tuple[int, ...]
    taps: Mapping[Tap, Tensor]
    seconds: Mapping[str, float]
    beside: Mapping[str, Draft] = field(factory=dict)

    def without_tensors(self) -> Step:
        """The same record without device memory behind it, for the history."""
        return evolve(self, taps={}, draft=evolve(self.draft, q=None), beside={})


@frozen(eq=False)
class Context:
    """Read-only view of one sequence, as it stands before a step.

    `tokens (T,)` are all committed ids; the last one is the root, which has not been through the target yet.
    `taps` are the states `(rows, d)` of the positions that the last pass committed (the whole prompt but its last
    token, before the first step); the last row is the newest. `remaining` counts the tokens the request may still get.
    `draft_seconds`: what a `propose` of each drafter that was asked has taken for this sequence, on average; the first,
    which may read the whole prompt, counts only until there is another.
    `readings`: those that the router needs, of the newest state; not a number where there is none, or it failed.
    """

    request_id: str
    tokens: NDArray[np.int64]
    prompt_length: int
    remaining: int
    taps: Mapping[Tap, Tensor]
    history: Sequence[Step]
    generation: Generation
    draft_seconds: Mapping[str, float] = field(factory=dict)
    readings: Mapping[Reading, float] = field(factory=dict)


@frozen
class Needs:
    """What a plugin requires of the pipeline: tapped states of the target, and models by name.

    `readings` are asked of a router once it is bound; their taps must be among those it needed before.
    """

    taps: tuple[Tap, ...] = ()
    models: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()


@frozen
class Emits:
    """What a drafter's drafts look like: trees (or only chains), with the laws `q` they were drawn from or without."""

    tree: bool = False
    q: bool = False


@frozen
class Accepts:
    """What a verifier can check: trees (or only chains), and whether every draft must carry its `q`."""

    tree: bool = True
    needs_q: bool = False


__all__ = [
    "AUTO",
    "MIDDLE",
    "TAP_KINDS",
    "UNLIMITED",
    "Acceptance",
    "Accepts",
    "Budget",
    "Choice",
    "Context",
    "Draft",
    "Emits",
    "Needs",
    "Reading",
    "Scores",
    "Step",
    "Tap",
]
