"""Runs many requests through one engine: admits, steps, retires. Sequences join and leave between steps."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field, frozen

from draftmux.engine.guard import Guard
from draftmux.engine.readings import opening
from draftmux.engine.session import UNUSABLE, Session
from draftmux.engine.step import Parts, step
from draftmux.engine.stopping import Stopping
from draftmux.errors import ModelError, PluginError, RequestError
from draftmux.results import Delta, Piece, Result
from draftmux.sampling import RuleContext, SamplingRule

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from draftmux.generation import Generation
    from draftmux.protocols import Opened


@frozen(eq=False)
class Request:
    """Token ids to continue, and how."""

    request_id: str
    tokens: tuple[int, ...]
    generation: Generation
    rule: SamplingRule


@define(eq=False)
class Scheduler:
    """A queue of requests and the sequences that run now, at most `max_batch` of them."""

    parts: Parts
    tokenizer: Any = None
    lossless: bool = True
    max_batch: int = 8
    _waiting: deque[Request] = field(factory=deque, init=False)
    _running: list[Session] = field(factory=list, init=False)
    _numbers: itertools.count[int] = field(factory=itertools.count, init=False)

    def submit(self, tokens: tuple[int, ...], generation: Generation, request_id: str | None = None) -> str:
        """Queue a request; RequestError when it cannot be served. Returns its id."""
        name = request_id or f"request-{next(self._numbers)}"
        if request_id in self.active:
            raise RequestError(f"request id '{name}' is already running; ids must be unique")
        self._check(tokens, generation)
        self._waiting.append(Request(name, tokens, generation, self._rule(tokens, generation)))
        return name

    @property
    def active(self) -> list[str]:
        """Ids of all requests that wait or run."""
        return [r.request_id for r in self._waiting] + [s.request_id for s in self._running]

    def run(self) -> Generator[Delta]:
        """Step until nothing is left, giving out what each request gains. Closing the iterator frees all sequences."""
        try:
            while self._waiting or self._running:
                yield from self.advance()
        finally:
            self.clear()

    def advance(self) -> list[Delta]:
        """Admit what fits, take one step with everything that runs, retire what ended or failed."""
        with self.parts.lock:
            return self._advance()

    def _advance(self) -> list[Delta]:
        failed = self._admit()
        failed += [self._fail(session) for session in list(self._running) if session.error is not None]
        running = list(self._running)
        gained = step(self.parts, running) if running else []
        return failed + [self._deliver(session, pieces) for session, pieces in zip(running, gained, strict=True)]

    def _admit(self) -> list[Delta]:
        """Open waiting requests while there is room; one whose prefill fails takes no other down."""
        failed = []
        while self._waiting and len(self._running) < self.max_batch:
            request = self._waiting.popleft()
            started = time.perf_counter()
            try:
                opened = self.parts.backend.open(request.tokens)
            except Exception as error:  # out of memory, for one
                fault = ModelError(
                    f"request {request.request_id}: the prefill of {len(request.tokens)} tokens failed: {error}"
                )
                fault.__cause__ = error
                failed.append(Delta(request.request_id, error=fault))
            else:
                self._running.append(self._open(request, opened, started))
        return failed

    def cancel(self, request_id: str) -> Result | None:
        """End a request now: what it has so far, or None if it waits, or has ended already."""
        with self.parts.lock:
            self._waiting = deque(r for r in self._waiting if r.request_id != request_id)
            session = next((s for s in self._running if s.request_id == request_id), None)
            if session is None:
                return None
            self._retire(session)
            return self._result(session)

    def clear(self) -> None:
        """Forget everything."""
        with self.parts.lock:
            self._waiting.clear()
            for session in list(self._running):
                self._retire(session)

    def _fail(self, session: Session) -> Delta:
        self._retire(session)
        return Delta(session.request_id, error=session.error)

    def _deliver(self, session: Session, pieces: list[Piece]) -> Delta:
        if session.error is not None:
            return self._fail(session)
        if session.finish_reason is None:
            return Delta(session.request_id, tuple(pieces))
        self._retire(session)
        return Delta(session.request_id, tuple(pieces), self._result(session))

    def _result(self, session: Session) -> Result:
        """With what router and verifier have to report; one that fails at it has lost the request nothing."""
        metrics, parts = session.metrics, self.parts
        metrics.router.update(_reported("router", parts.router, session, session.router_state))
        metrics.verifier.update(_reported("verifier", parts.verifier, session, session.verifier_state))
        return session.result(self.lossless)

    def _retire(self, session: Session) -> None:
        self._running.remove(session)
        self.parts.backend.close(session.handle)

    def _check(self, tokens: tuple[int, ...], generation: Generation) -> None:
        backend = self.parts.backend
        if not tokens:
            raise RequestError("the prompt has no tokens; give at least one (a begin-of-text token will do)")
        wrong = [token for token in tokens if not 0 <= token < backend.vocab_size]
        if wrong:
            raise RequestError(f"prompt token {wrong[0]} is not an id of the target (0 to {backend.vocab_size - 1})")
        if backend.max_length is not None and len(tokens) >= backend.max_length:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens; the target attends to {backend.max_length}, one of them new"
            )
        if generation.stop and self.tokenizer is None:
            raise RequestError("stop texts need a tokenizer, and this backend has none; use stop_ids")
        if "" in generation.stop:
            raise RequestError("an empty stop text would end every request at once; remove it from `stop`")
        for stop in generation.stop:
            if stop in getattr(self.tokenizer, "all_special_tokens", ()):
                number = self.tokenizer.convert_tokens_to_ids(stop)
                raise RequestError(
                    f"stop text {stop!r} is a special token, which no text shows; use stop_ids: [{number}]"
                )

    def _rule(self, tokens: tuple[int, ...], generation: Generation) -> SamplingRule:
        backend = self.parts.backend
        context = RuleContext(backend.vocab_size, len(tokens), backend.eos_ids, backend.device, self.tokenizer)
        return SamplingRule.build(generation, context)

    def _open(self, request: Request, opened: Opened, started: float) -> Session:
        backend, generation = self.parts.backend, request.generation
        room = backend.max_length - len(request.tokens) if backend.max_length is not None else generation.max_new_tokens
        limit = min(generation.max_new_tokens, room)
        stopping = Stopping.build(generation, backend.eos_ids, limit, self.tokenizer)
        session = Session(
            request_id=request.request_id,
            generation=generation,
            rule=request.rule,
            stopping=stopping,
            handle=opened.sequence,
            prompt_length=len(request.tokens),
            taps=opened.taps,
            tokens=np.array(request.tokens, dtype=np.int64),
            constraint=request.rule.constraint,
            started=started,
        )
        session.metrics.prefill_seconds = time.perf_counter() - started
        try:
            self._begin(session)
        except BaseException:
            backend.close(opened.sequence)
            raise
        return session

    def _begin(self, session: Session) -> None:
        """Open every plugin's state; a plugin that fails here is not asked again for this sequence."""
        session.readings = opening(self.parts, session)
        guard, context = self.parts.guard, session.context()
        for name, drafter in self.parts.drafters.items():
            session.metrics.steps_by_drafter[name] = 0  # so that one that never engages shows
            session.states[name] = guard.call(f"drafter '{name}'", [session], partial(drafter.begin, context), UNUSABLE)
        session.router_state = guard.call("router", [session], partial(self.parts.router.begin, context), UNUSABLE)
        begin = getattr(self.parts.verifier, "begin", None)
        if begin is not None:
            session.verifier_state = guard.call("verifier", [session], partial(begin, context), UNUSABLE)


def _reported(kind: str, plugin: Any, session: Session, state: Any) -> dict[str, Any]:
    """What a plugin has to say at a request's end; nothing if it fails at it."""
    report = getattr(plugin, "report", None)
    if report is None or state is UNUSABLE:
        return {}
    nothing: dict[str, Any] = {}
    return Guard("skip").call(kind, [session], lambda: _numbers(kind, report(state)), nothing)


def _numbers(kind: str, told: Mapping[str, float]) -> dict[str, Any]:
    """What a plugin reports, if it is numbers by name."""
    found = {str(name): float(value) for name, value in told.items()}
    if wrong := [name for name, value in found.items() if not math.isfinite(value)]:
        raise PluginError(f"a {kind}'s report must hold finite numbers; '{wrong[0]}' is {found[wrong[0]]}")
    return found
