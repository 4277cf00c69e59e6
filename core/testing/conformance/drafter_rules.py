"""Checks of single drafts and of a drafter's state: budgets, trees, sitting out, rejected drafts, laziness."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from draftmux.engine.guard import Terms, checked_draft, checked_drafts
from draftmux.generation import Generation
from draftmux.protocols import DraftRequest
from draftmux.routers.fixed import Fixed
from draftmux.testing.conformance.players import BUDGET, Player, compare, copied, play, room, transcripts
from draftmux.testing.conformance.report import DoubtError, NotApplicableError
from draftmux.testing.conformance.scenes import Scene, Transcript, asks, described, record, said
from draftmux.testing.conformance.spies import BackendSpy, forwards
from draftmux.tree import ROOT
from draftmux.types import Acceptance, Accepts, Budget, Context, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Emits, Step

BUDGETS = (
    Budget(max_nodes=1),
    Budget(max_nodes=4096),
    Budget(max_nodes=24, max_depth=1),
    Budget(max_nodes=24, max_branches=1),
    Budget(max_nodes=3, max_depth=2),
    Budget(max_nodes=1, max_depth=1, max_branches=1),
    Budget(max_nodes=12, max_depth=4, max_branches=2),
)
SLOW_OBSERVE = 0.01  # seconds
SLOW_PROPOSE = 0.003
LONG = 20_000


def budgets(subject: Subject) -> None:
    """Drafts keep their budget: nodes in all, nodes on a path, branches; one node as well as thousands."""
    for where, draft, budget in drafts(subject):
        found = _sizes(draft)
        for name, size in found.items():
            most = getattr(budget, name)
            assert size <= most, f"{where}: a draft of {len(draft)} nodes has {name} {size}, and its budget {budget}"


def legal_trees(subject: Subject) -> None:
    """Drafts are trees of the target's ids without twins, and what `emits` declares: chains or trees, with q or
    without."""
    declared: Emits = subject.plugin.emits
    for where, draft, _ in drafts(subject):
        try:
            checked_draft(draft, Terms(Budget(), subject.scenes[0].target.vocab_size, declared, Accepts()))
        except Exception as error:
            raise AssertionError(f"{where}: {error}") from error
        assert declared.q or not len(draft) or draft.q is None, f"{where}: a draft has q, but emits.q is False"


def drafts(subject: Subject) -> Iterator[tuple[str, Any, Budget]]:
    """What it drafts in recorded decodings under ever other budgets, and where."""
    turn = 0
    for scene, played in transcripts(subject):
        bound = subject.bind(scene.target)
        for transcript in played:
            state = bound.begin(copied(transcript.contexts[0]))
            for context, step in zip(transcript.contexts, transcript.steps, strict=True):
                turn += 1
                if context.remaining > 1:
                    budget = room(BUDGETS[turn % len(BUDGETS)], context)
                    [draft] = checked_drafts(bound.propose([DraftRequest(copied(context), state, budget)]), 1)
                    assert isinstance(draft, Draft), f"propose gave a {type(draft).__name__}, not a Draft"
                    yield f"{described(transcript.ask)}, after {said(context.tokens)}", draft, budget
                bound.observe(state, step)


def _sizes(draft: Draft) -> dict[str, int]:
    inner = set(draft.parents.tolist()) - {ROOT}
    depth = int(draft.depths.max()) if len(draft) else 0
    return {"max_nodes": len(draft), "max_depth": depth, "max_branches": len(draft) - len(inner)}


def catches_up(subject: Subject) -> None:
    """After sitting steps out it drafts what it would have drafted had it been asked at every step."""
    for scene, played in transcripts(subject):
        for transcript in played:
            asked = play(Player.new(subject, scene), transcript)
            last = max((i for i, context in enumerate(transcript.contexts) if context.remaining > 1), default=0)
            for turns in ({last // 2, last}, {last}):
                late = play(Player.new(subject, scene), transcript, turns.__contains__)
                compare(transcript, asked, late, ("asked at every step", f"asked at steps {sorted(turns)} only"))


def rejected_drafts_leave_no_trace(subject: Subject) -> None:
    """Which tokens were rejected changes nothing of what it drafts later."""
    for scene in subject.scenes:
        plain, size = plain_transcript(scene), scene.target.vocab_size
        marks = (size - 1, size - 2)
        one, two = (
            play(Player.new(subject, scene), plain, told=partial(_rejecting, subject, size, mark)) for mark in marks
        )
        how = [f"after rejected drafts that end in token {mark}" for mark in marks]
        compare(plain, one, two, (how[0], how[1]))


def plain_transcript(scene: Scene) -> Transcript:
    """One token a step: no draft was right, if there was any."""
    ask = asks(scene.target, sampled=False, new_tokens=24)[3]
    found: Transcript = scene.once("plain", lambda: record(scene.target, {}, Fixed(), ask))
    return found


def _rejecting(subject: Subject, size: int, mark: int, step: Step) -> Step:
    """The same step after a draft whose first token was wrong; behind it stand the right one and `mark`."""
    [token] = step.committed
    draft = Draft.chain([(token + 1) % size, token, mark, mark])
    if subject.plugin.emits.q:
        import torch

        draft = evolve(draft, q=torch.full((len(draft), size), 1 / size))
    return evolve(step, drafter="it", draft=draft, acceptance=Acceptance((), token))


def lazy_observe(subject: Subject) -> None:
    """`observe` only takes note: it runs no model and takes no time; the next propose catches up."""
    for scene, played in transcripts(subject):
        calls: list[str] = []
        seen: set[str] = set()
        seconds: list[float] = []
        bound = subject.bind(BackendSpy(scene.target, calls))
        for transcript in played[:3]:
            state = bound.begin(copied(transcript.contexts[0]))
            calls.clear()
            for number, step in enumerate(transcript.steps):
                where = f"{described(transcript.ask)}, step {number}"
                started = time.perf_counter()
                with forwards(seen):
                    bound.observe(state, step)
                seconds.append(time.perf_counter() - started)
                assert not calls, f"{where}: observe called `{calls[0]}` of the backend"
                assert not seen, f"{where}: observe ran {', '.join(sorted(seen))}, as forwards of a model do"
        slow = statistics.median(seconds)
        assert slow < SLOW_OBSERVE, f"on {scene.name}: observe took {slow * 1000:.0f} ms, at the median of all steps"


def long_context(subject: Subject) -> None:
    """Another draft after one more token is not another scan of a long text."""
    if subject.plugin.needs != type(subject.plugin.needs)():
        raise NotApplicableError("it needs a model or taps, whose own time is longer than that of a scan")
    scene = subject.scenes[0]
    short, long = (_seconds_to_draft(subject, scene, length) for length in (LONG // 40, LONG))
    if long > SLOW_PROPOSE and long > 4 * short:
        raise DoubtError(
            f"after {LONG} tokens propose takes {long * 1000:.1f} ms, after {LONG // 40} {short * 1000:.1f} ms; keep "
            "an index and let it catch up with what is new"
        )


def _seconds_to_draft(subject: Subject, scene: Scene, length: int) -> float:
    """The least time of some drafts, one token after the other."""
    text = np.random.default_rng(8).integers(0, scene.target.vocab_size, length + 8)
    text[length // 2 :] = text[: len(text) - length // 2]
    bound = subject.bind(scene.target)

    def context(count: int) -> Context:
        return Context("long", text[:count].copy(), length, 99, {}, (), Generation())

    state, took = bound.begin(context(length)), []
    bound.propose([DraftRequest(context(length), state, BUDGET)])
    for count in range(length + 1, length + 8):
        request = DraftRequest(context(count), state, BUDGET)
        took.append(_timed(partial(bound.propose, [request])))
    return min(took)


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
