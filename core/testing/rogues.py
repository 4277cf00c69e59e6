"""Plugins that misbehave in one named way each: what the engine must survive without a wrong token.

Each does the right thing but for its one fault, so that an engine that misses the fault shows it. `victims` limits the
fault to some request ids; everyone else in the batch is served rightly.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen

from draftmux.routing import BaseRouter
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts, Choice, Draft, Emits, Needs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from draftmux.drafting import SequenceDrafter
    from draftmux.protocols import Drafter, DraftRequest, Resources, Verifier
    from draftmux.sampling import Sampler
    from draftmux.types import Context, Scores, Step

FAR_TOO_MANY = 400
NAP_SECONDS = 0.002


class RogueError(Exception):
    """What a rogue raises."""


class MuteError(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RogueError("no words")


def _last_id(wrong: Callable[[int], int]) -> Callable[[Draft, int], Draft]:
    return lambda draft, size: Draft([*draft.tokens[:-1].tolist(), wrong(size)], draft.parents)


def _with_q(value: float) -> Callable[[Draft, int], Draft]:
    def spoil(draft: Draft, size: int) -> Draft:
        import torch

        return Draft(draft.tokens, draft.parents, torch.full((len(draft), size), value))

    return spoil


def _parents_out_of_order(draft: Draft, size: int) -> Draft:
    draft.parents.flags.writeable = True
    draft.parents[-1] = len(draft)  # after the draft was made, so its own check has passed
    return draft


def _twin(draft: Draft, size: int) -> Draft:
    """A second child of the root with the first one's token."""
    return Draft([*draft.tokens.tolist(), int(draft.tokens[0])], [*draft.parents.tolist(), ROOT])


def _stale(draft: Draft, size: int) -> Draft:
    """Legal, but changed after the draft worked out depths and children, which it will not do again."""
    assert draft.children and len(draft.depths)
    draft.tokens.flags.writeable = True
    draft.tokens[:] = (draft.tokens + 1) % size
    return draft


def _raise(*_: Any) -> Any:
    raise RogueError("a rogue's own error")


def _raise_mutely(*_: Any) -> Any:
    raise MuteError


# What becomes of a right draft, by mode; each takes the draft and the size of the vocabulary.
DRAFTS: dict[str, Callable[[Draft, int], Any]] = {
    "negative-id": _last_id(lambda size: -1),
    "id-v": _last_id(lambda size: size),
    "id-beyond": _last_id(lambda size: size + 5),
    "too-many": lambda draft, size: Draft.chain(np.resize(draft.tokens, FAR_TOO_MANY)),
    "parents": _parents_out_of_order,
    "stale": _stale,
    "twin": _twin,
    "undeclared-tree": lambda draft, size: Draft(
        [*draft.tokens.tolist(), (draft.tokens[0] + 1) % size], [*draft.parents.tolist(), ROOT]
    ),
    "sources": lambda draft, size: Draft(draft.tokens, draft.parents, sources=([],) * len(draft)),  # type: ignore[arg-type]
    "nan-q": _with_q(float("nan")),
    "heavy-q": _with_q(1.0),
    "list-q": lambda draft, size: Draft(draft.tokens, draft.parents, [[1 / size] * size] * len(draft)),
    "list": lambda draft, size: draft.tokens.tolist(),
    "confidence": lambda draft, size: Draft(draft.tokens, draft.parents, confidence=[1.5] * len(draft)),
    "float-ids": lambda draft, size: Draft(draft.tokens + 0.5, draft.parents),
}
# What becomes of the answer to a whole batch.
BATCHES: dict[str, Callable[[list[Any]], Any]] = {
    "count": lambda drafts: [*drafts, Draft.empty()],
    "none": lambda drafts: None,
    "iterator": iter,
    "exits": lambda drafts: sys.exit("a rogue leaves"),
    "mute": _raise_mutely,
    "raises": lambda drafts: drafts,  # at the third call only, see `propose`
    "sleeps": lambda drafts: drafts,
}
CALLS = ("begin", "observe")
HARMLESS = ("sleeps", "stale")  # slow, or wrong guesses in a legal tree: no fault to count
DRAFTER_MODES = (*DRAFTS, *BATCHES, *CALLS)


@frozen
class Rogue:
    """A drafter that spoils the drafts of `inner` as `mode` says; `DRAFTER_MODES` lists the modes.

    `raises` does so at its third call only; `sleeps` is slow but right, and `stale` never guesses right.
    """

    needs: ClassVar[Needs] = Needs()

    mode: str
    inner: SequenceDrafter
    vocab_size: int
    victims: frozenset[str] | None = None
    calls: itertools.count[int] = Factory(lambda: itertools.count(1))

    @property
    def emits(self) -> Emits:
        """Trees, unless the rogue denies it."""
        return Emits(tree=self.mode != "undeclared-tree")

    def uses(self) -> tuple[str, ...]:
        """No other drafter by name."""
        return ()

    def bind(self, resources: Resources) -> Rogue:
        """Needs nothing."""
        return self

    def begin(self, context: Context) -> Any:
        """The inner state, with the victim's id beside it."""
        if self.mode == "begin" and self._hits(context):
            _raise()
        return self._hits(context), self.inner.begin(context)

    def propose(self, requests: Sequence[DraftRequest]) -> Any:
        """The inner drafter's drafts, spoilt."""
        call = next(self.calls)
        answer: list[Any] = [self._one(request) for request in requests]
        if not any(self._hits(request.context) for request in requests):
            return answer
        if self.mode == "sleeps":
            time.sleep(NAP_SECONDS)
        if self.mode == "raises" and call == 3:
            _raise()
        return BATCHES.get(self.mode, list)(answer)

    def observe(self, state: Any, step: Step) -> None:
        """Pass it on, or raise."""
        hit, inner = state
        if self.mode == "observe" and hit:
            _raise()
        self.inner.observe(inner, step)

    def _one(self, request: DraftRequest) -> Any:
        draft = self.inner.propose_one(request.context, request.state[1], request.budget)
        if not len(draft) or self.mode not in DRAFTS or not self._hits(request.context):
            return draft
        return DRAFTS[self.mode](draft, self.vocab_size)

    def _hits(self, context: Context) -> bool:
        return self.victims is None or context.request_id in self.victims


# A rogue router's choice, by mode; it is given the names of the drafters.
CHOICES: dict[str, Callable[[list[str]], Any]] = {
    "none": lambda names: None,
    "string": lambda names: names[0],
    "unknown": lambda names: Choice("no-such-drafter"),
    "unknown-otherwise": lambda names: Choice(names[0], otherwise=("no-such-drafter",)),
    "budget": lambda names: Choice(names[0], budget=None),  # type: ignore[arg-type]
    "otherwise-number": lambda names: Choice(names[0], otherwise=7),  # type: ignore[arg-type]
    "raises": _raise,
}
# What it keeps of a draft, by mode.
TRIMS: dict[str, Callable[[Draft], Any]] = {
    "trim-text": lambda draft: "all",
    "trim-beyond": lambda draft: [len(draft)],
    "trim-negative": lambda draft: [-2],
    "trim-number": lambda draft: [0.5],
    "trim-raises": _raise,
}
ROUTER_MODES = (*CHOICES, *TRIMS, *CALLS)


@frozen
class RogueRouter(BaseRouter):
    """A router that spoils its choice as `mode` says; `ROUTER_MODES` lists the modes."""

    mode: str
    victims: frozenset[str] | None = None

    def begin(self, context: Context) -> bool:
        """Whether this request is hit."""
        hit = self.victims is None or context.request_id in self.victims
        if self.mode == "begin" and hit:
            _raise()
        return hit

    def choose(self, state: bool, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """The first drafter, or rubbish."""
        names = sorted(drafters)
        return CHOICES[self.mode](names) if state and self.mode in CHOICES else Choice(names[0])

    def trim(self, state: bool, context: Context, name: str, draft: Draft) -> Any:
        """All nodes, or rubbish."""
        return TRIMS[self.mode](draft) if state and self.mode in TRIMS else range(len(draft))

    def observe(self, state: bool, step: Step) -> None:
        """Raise, if that is the mode."""
        if state and self.mode == "observe":
            _raise()


# A rogue verifier's decision, by mode; it is given the right one, the draft and the size of the vocabulary.
DECISIONS: dict[str, Callable[[Acceptance, Draft, int], Any]] = {
    "none": lambda right, draft, size: None,
    "tuple": lambda right, draft, size: (right.path, right.token),
    "raises": _raise,
    "token-v": lambda right, draft, size: Acceptance(right.path, size),
    "token-negative": lambda right, draft, size: Acceptance(right.path, -1),
    "node-beyond": lambda right, draft, size: Acceptance((*right.path, len(draft)), right.token),
    "node-negative": lambda right, draft, size: Acceptance((*right.path, -1), right.token),
    "node-twice": lambda right, draft, size: Acceptance((*right.path, 0, 0), right.token),
    "token-float": lambda right, draft, size: Acceptance(right.path, right.token + 0.5),  # type: ignore[arg-type]
    "no-path": lambda right, draft, size: Acceptance(None, right.token),  # type: ignore[arg-type]
}


@frozen
class RogueVerifier:
    """A verifier that spoils the decisions of `inner` as `mode` says; `DECISIONS` lists the modes."""

    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = True
    accepts: ClassVar[Accepts] = Accepts(tree=True)

    mode: str
    inner: Verifier
    vocab_size: int
    victims: frozenset[str] | None = field(default=None)

    def bind(self, resources: Resources) -> RogueVerifier:
        """Needs nothing."""
        return self

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Any:
        """The right decision, spoilt."""
        right = self.inner.accept(context, draft, scores, sampler)
        hit = self.victims is None or context.request_id in self.victims
        return DECISIONS[self.mode](right, draft, self.vocab_size) if hit else right
