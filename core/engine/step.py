"""One step of speculative decoding for a batch of sequences: route, propose, score, accept, commit, observe.

Everything else in this package is called from here or prepares for it. Plain decoding is this step with no drafter.
"""

from __future__ import annotations

from functools import cached_property, partial
from threading import RLock
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from draftmux.constraining import advanced
from draftmux.engine.accepting import accept
from draftmux.engine.affordable import Allowance
from draftmux.engine.guard import Guard, checked_choice
from draftmux.engine.metrics import Clock
from draftmux.engine.proposing import Drafted, propose
from draftmux.engine.readings import Readings
from draftmux.engine.session import UNUSABLE
from draftmux.errors import DraftmuxError
from draftmux.protocols import Row
from draftmux.results import TARGET, Piece
from draftmux.sampling import fetch_picks
from draftmux.types import Choice, Reading, Scores, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftmux.engine.session import Session
    from draftmux.protocols import BoundBackend, Drafter, Router, Verifier
    from draftmux.sampling import Sampler
    from draftmux.types import Acceptance


@frozen(eq=False)
class Parts:
    """The bound parts of a pipeline. `drafters` are those that the router can reach.

    `lock` is held while the backend works; pipelines that share a backend share it.
    """

    backend: BoundBackend
    drafters: Mapping[str, Drafter]
    router: Router
    verifier: Verifier
    guard: Guard = field(factory=Guard)
    lock: RLock = field(factory=RLock)

    def guard_of(self, name: str) -> Guard:
        """How faults of a drafter are met.

        Before a rule that weighs p against q, a failed draft was drawn all the same: going on without it would drop it
        by its value, and bias the text. So there a fault always ends the request.
        """
        try:
            weighed = self.drafters[name].emits.q and not self.pathwise
        except Exception:  # one that fails to say is met where its draft is checked
            weighed = False
        return Guard("raise") if weighed else self.guard

    @cached_property
    def pathwise(self) -> bool:
        """Whether the verifier follows the target's own picks."""
        try:
            return bool(self.verifier.pathwise)
        except Exception:  # one that fails to say is met where it decides
            return False

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """What the router reads off tapped states."""
        try:
            return tuple(self.router.needs.readings)
        except Exception:  # one that fails to say reads none
            return ()

    @cached_property
    def allowance(self) -> Allowance:
        """What the cost of a pass allows where a budget gives no number."""
        return Allowance(self.backend.cost)


def step(parts: Parts, sessions: Sequence[Session]) -> list[list[Piece]]:
    """Advance every session by one target pass; returns the pieces that each of them gained (at least one token)."""
    clock = Clock()
    routed = [route(parts, session) for session in sessions]
    clock.lap("route")
    drafted = propose(parts, routed)
    clock.lap("propose")
    scores = parts.backend.score([Row(d.session.handle, d.session.root, d.draft) for d in drafted])
    clock.lap("score")
    samplers = [sampler_of(d, s) for d, s in zip(drafted, scores, strict=True)]
    readings = Readings.launch(parts, [d.session for d in drafted], scores)
    readings.take(fetch_picks(samplers, sampled=parts.pathwise, also=readings.packed))
    decided = accept(parts, drafted, samplers)
    clock.lap("accept")
    committed = [
        commit(parts, d, s, acceptance, clock.seconds)
        for d, s, acceptance in zip(drafted, scores, decided, strict=True)
    ]
    for d, (record, _) in zip(drafted, committed, strict=True):
        d.session.readings = readings.at(d.session, record)
    clock.lap("commit")
    for session, (record, _) in zip(sessions, committed, strict=True):
        if session.error is None:  # else it gets no further step, and this one may hold no token
            observe(parts, session, record)
    clock.lap("observe")
    for session, (record, _) in zip(sessions, committed, strict=True):
        session.metrics.record(record, len(sessions))
    return [pieces for _, pieces in committed]


def route(parts: Parts, session: Session) -> Drafted:
    """Ask the router; a router that fails means plain decoding for this step."""
    context = session.context()
    if session.router_state is UNUSABLE:
        return Drafted(session, context, Choice(None))
    choice = parts.guard.call(
        "router",
        [session],
        lambda: checked_choice(parts.router.choose(session.router_state, context, parts.drafters), parts.drafters),
        Choice(None),
    )
    return Drafted(session, context, choice)


def sampler_of(drafted: Drafted, scores: Scores) -> Sampler:
    """The target's law at the scored rows. It reads the session's own tokens, not those that plugins were shown."""
    own = evolve(drafted.context, tokens=drafted.session.tokens)
    return drafted.session.rule.at(own, drafted.draft, scores, drafted.session.constraint)


def commit(
    parts: Parts, drafted: Drafted, scores: Scores, acceptance: Acceptance, seconds: Mapping[str, float]
) -> tuple[Step, list[Piece]]:
    """Cut the accepted run where the request ends, keep the rest in the cache and the session, and record the step."""
    session, draft = drafted.session, drafted.draft
    run = (*draft.tokens[list(acceptance.path)].tolist(), acceptance.token)
    texts, reason = session.stopping.cut(run)
    committed = run[: len(texts)]
    kept = acceptance.path[: len(committed) - 1]
    parts.backend.commit(session.handle, kept)
    session.extend(committed)
    _advance_constraint(session, committed, ended=reason is not None)
    if session.handle.length != len(session.tokens) - 1:
        raise DraftmuxError(
            f"request {session.request_id}: the KV cache holds {session.handle.length} rows for {len(session.tokens)} "
            f"committed tokens; it must hold one fewer. The backend is at fault"
        )
    rows = [0, *(node + 1 for node in kept)]
    session.taps = {tap: states[rows] for tap, states in scores.taps.items()}
    session.finish_reason = reason
    record = Step(drafted.choice, drafted.drafter, draft, acceptance, committed, session.taps, seconds, drafted.beside)
    return record, _pieces(session, record, texts)


def _advance_constraint(session: Session, committed: tuple[int, ...], ended: bool) -> None:
    if session.constraint is None or ended:
        return
    try:
        session.constraint = advanced(session.constraint, committed)
    except DraftmuxError as error:
        session.error = session.error or error


def _pieces(session: Session, record: Step, texts: list[str]) -> list[Piece]:
    """What the session's reader sees: tokens with their text, the drafter that guessed them, their log-probability."""
    drafter = record.drafter or TARGET
    sources = [*(record.draft.source(node, drafter) for node in record.acceptance.path), TARGET]
    logprobs = record.acceptance.logprobs or [None] * len(sources)
    session.texts += texts
    kept = len(texts)
    pieces = [Piece(*p) for p in zip(record.committed, texts, sources[:kept], logprobs[:kept], strict=True)]
    session.logprobs += [piece.logprob for piece in pieces if piece.logprob is not None]
    return pieces


def observe(parts: Parts, session: Session, record: Step) -> None:
    """Tell everyone what was committed."""
    session.history.append(record.without_tensors())
    if session.pace is not None:
        session.pace.learn(record)
    for name, drafter in parts.drafters.items():
        if session.states[name] is not UNUSABLE:
            tell = partial(drafter.observe, session.states[name], record)
            parts.guard.call(f"drafter '{name}'", [session], tell, None)
    if session.router_state is not UNUSABLE:
        parts.guard.call("router", [session], partial(parts.router.observe, session.router_state, record), None)
