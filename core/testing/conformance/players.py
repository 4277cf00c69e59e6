"""Plays drafters and routers through recorded decodings, so that two plays differ in one thing only.

A play calls begin, ask (propose or choose) and observe exactly as the engine does, but with contexts and steps that
were recorded with other plugins: what the plugin answers changes nothing of what it is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import astuple, evolve, frozen

from draftmux.arrays import frozen_view
from draftmux.engine.guard import checked_choice, checked_drafts
from draftmux.protocols import DraftRequest
from draftmux.testing.conformance.scenes import Scene, Transcript, asks, described, record, said
from draftmux.testing.drafters import RandomTree, TreeOracle
from draftmux.testing.routers import RandomRouter
from draftmux.types import Budget, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Choice, Context, Step

BUDGET = Budget(max_nodes=24)
NEAR = 1e-4  # rounding of a draft model's q in batches of different size


@frozen(eq=False)
class Answer:
    """A draft or a choice in plain values; `q` is an array or None."""

    values: tuple[Any, ...]
    q: Any = None

    def same(self, other: Answer) -> bool:
        """Whether both say the same."""
        if self.values != other.values or (self.q is None) != (other.q is None):
            return False
        return self.q is None or bool(np.allclose(self.q, other.q, atol=NEAR))

    def __str__(self) -> str:
        return " ".join(map(str, self.values)) or "nothing"


NOTHING = Answer(())


@frozen(eq=False)
class Player:
    """A bound plugin of its own for one play, on one scene."""

    subject: Subject
    bound: Any
    scene: Scene

    @classmethod
    def new(cls, subject: Subject, scene: Scene) -> Player:
        """A plugin that has seen nothing yet."""
        return cls(subject, subject.bind(scene.target), scene)

    def ask(self, contexts: Sequence[Context], states: Sequence[Any], budget: Budget = BUDGET) -> list[Answer]:
        """An answer for each of a batch of sequences."""
        if self.subject.kind == "router":
            return [self._choose(context, state) for context, state in zip(contexts, states, strict=True)]
        answers = dict.fromkeys(range(len(contexts)), NOTHING)
        requests = {
            i: DraftRequest(context, state, room(budget, context))
            for i, (context, state) in enumerate(zip(contexts, states, strict=True))
            if context.remaining > 1
        }
        drafts = checked_drafts(self.bound.propose(list(requests.values())), len(requests)) if requests else []
        return list((answers | {i: of_draft(draft) for i, draft in zip(requests, drafts, strict=True)}).values())

    def _choose(self, context: Context, state: Any) -> Answer:
        drafters = self.subject.drafters(self.scene.target)
        return of_choice(checked_choice(self.bound.choose(state, context, drafters), drafters))


def room(budget: Budget, context: Context) -> Budget:
    """As the engine cuts it: the step adds one token of the target's own."""
    return budget.within(Budget(max_depth=max(context.remaining - 1, 0)))


def of_draft(draft: Any) -> Answer:
    """A draft in plain values; the empty one is nothing."""
    assert isinstance(draft, Draft), f"propose gave a {type(draft).__name__}, not a Draft"
    if not len(draft):
        return NOTHING
    q = None if draft.q is None else np.asarray(draft.q.tolist())
    return Answer(("tokens", draft.tokens.tolist(), "parents", draft.parents.tolist()), q)


def of_choice(choice: Choice) -> Answer:
    """A choice in plain values."""
    second = choice.otherwise, choice.otherwise_budget
    return Answer(("drafter", choice.drafter, "budget", astuple(choice.budget), "otherwise", *second))


def transcripts(subject: Subject) -> list[tuple[Scene, list[Transcript]]]:
    """Recorded decodings per scene, greedy and sampled, with all kinds of drafts and budgets; made once."""

    def make() -> list[tuple[Scene, list[Transcript]]]:
        return [(scene, _recordings(subject, scene)) for scene in subject.scenes]

    found: list[tuple[Scene, list[Transcript]]] = subject.once("transcripts", make)
    return found


def _recordings(subject: Subject, scene: Scene) -> list[Transcript]:
    asked = [*asks(scene.target, sampled=False, count=3), *asks(scene.target, sampled=True, count=2)]
    if subject.kind == "router":  # it is shown the drafters that it knows
        return [record(scene.target, subject.drafters(scene.target), RandomRouter(3), ask) for ask in asked]
    truths = [scene.expect(ask).truth for ask in asked]
    found: list[Transcript] = scene.once(
        "transcripts", lambda: [record(scene.target, others(scene, truths), RandomRouter(3), ask) for ask in asked]
    )
    return found


def others(scene: Scene, truths: list[list[int]]) -> dict[str, Any]:
    """Drafters that draft when the one under test does not: one that is often right, one that hardly ever is."""
    size = scene.target.vocab_size
    return {"right": TreeOracle(truths, size, k=3), "wrong": RandomTree(size, nodes=4, seed=2)}


def copied(context: Context) -> Context:
    """The same with tokens of its own, as the engine hands them out."""
    return evolve(context, tokens=frozen_view(context.tokens.copy()))


def play(
    player: Player,
    transcript: Transcript,
    asked: Callable[[int], bool] = lambda _: True,
    shown: Callable[[Context], Context] = copied,
    told: Callable[[Step], Step] = lambda step: step,
) -> list[Answer | None]:
    """The answers to one request, None where it was not asked. `shown` and `told` may change what it sees."""
    state = player.bound.begin(shown(transcript.contexts[0]))
    answers: list[Answer | None] = []
    for number, (context, step) in enumerate(zip(transcript.contexts, transcript.steps, strict=True)):
        answers.append(player.ask([shown(context)], [state])[0] if asked(number) else None)
        player.bound.observe(state, told(step))
    return answers


def play_together(player: Player, played: Sequence[Transcript]) -> list[list[Answer]]:
    """The same for several requests that run at the same time, asked in one batch."""
    states = [player.bound.begin(copied(transcript.contexts[0])) for transcript in played]
    answers: list[list[Answer]] = [[] for _ in played]
    for number in range(max(len(transcript.steps) for transcript in played)):
        running = [i for i, transcript in enumerate(played) if number < len(transcript.steps)]
        found = player.ask([copied(played[i].contexts[number]) for i in running], [states[i] for i in running])
        for i, answer in zip(running, found, strict=True):
            answers[i].append(answer)
            player.bound.observe(states[i], played[i].steps[number])
    return answers


def compare(
    transcript: Transcript,
    expected: Sequence[Answer | None],
    found: Sequence[Answer | None],
    how: tuple[str, str],
) -> None:
    """Both plays gave the same answers wherever both were asked; `how` says what told them apart."""
    for number, (one, two) in enumerate(zip(expected, found, strict=True)):
        if one is not None and two is not None and not one.same(two):
            text = said(transcript.contexts[number].tokens)
            raise AssertionError(
                f"{described(transcript.ask)}, step {number}, after {text}: {how[0]} it says '{one}', {how[1]} '{two}'"
            )
