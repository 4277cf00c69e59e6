"""Drafts for a batch: a drafter is asked at once for all sequences that want it next, and its answers are checked."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from draftmux.constraining import Constrained
from draftmux.engine.guard import Guard, Terms, checked_draft, checked_drafts, checked_nodes
from draftmux.engine.session import UNUSABLE
from draftmux.errors import DraftmuxError
from draftmux.protocols import DraftRequest
from draftmux.pruning import only
from draftmux.types import Budget, Draft

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftmux.engine.session import Session
    from draftmux.engine.step import Parts
    from draftmux.types import Choice, Context


@frozen(eq=False)
class Drafted:
    """A session's choice and draft, as they travel from propose to commit."""

    session: Session
    context: Context
    choice: Choice
    drafter: str | None = None
    draft: Draft = field(factory=Draft.empty)
    beside: Mapping[str, Draft] = field(factory=dict)


def propose(parts: Parts, routed: Sequence[Drafted]) -> list[Drafted]:
    """Ask the chosen drafters; whoever has no draft is asked for its next choice. Then those to be seen beside."""
    done = list(routed)
    seen: list[dict[str, Draft]] = [{} for _ in done]
    queues = [[name for name in d.choice.candidates if d.session.states[name] is not UNUSABLE] for d in done]
    while groups := _by_next_drafter(queues):
        for name, members in groups.items():
            asked = {i: done[i].choice.budget_of(name) for i in members}
            for i, whole in _drafts(parts, name, done, asked, parts.guard_of(name)).items():
                seen[i][name] = whole
                draft = _trimmed(parts, done[i], name, whole)
                if len(draft):
                    done[i] = evolve(done[i], drafter=name, draft=draft)
                    queues[i] = []
    return _beside(parts, done, seen)


def _trimmed(parts: Parts, routed: Drafted, name: str, draft: Draft) -> Draft:
    """What a router that looks at drafts before they are scored keeps of one. A sampled one stays whole."""
    trim = getattr(parts.router, "trim", None)
    session = routed.session
    if trim is None or not len(draft) or draft.q is not None or session.router_state is UNUSABLE:
        return draft

    def kept() -> Draft:
        nodes = trim(session.router_state, routed.context, name, draft)
        return draft if nodes is None else only(draft, checked_nodes(nodes, draft))

    return parts.guard.call("router", [session], kept, draft)


def _by_next_drafter(queues: list[list[str]]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for i, queue in enumerate(queues):
        if queue:
            groups.setdefault(queue.pop(0), []).append(i)
    return groups


def _beside(parts: Parts, done: list[Drafted], seen: list[dict[str, Draft]]) -> list[Drafted]:
    """With the drafts that a choice wants to see and nobody has asked for yet."""
    wanted: dict[str, dict[int, Budget]] = {}
    for i, each in enumerate(done):
        for name, budget in each.choice.beside.items():
            if name not in seen[i] and each.session.states[name] is not UNUSABLE:
                wanted.setdefault(name, {})[i] = budget
    for name, asked in wanted.items():
        for i, draft in _drafts(parts, name, done, asked, parts.guard).items():  # nothing hangs on these
            seen[i][name] = draft
    return [
        evolve(each, beside={name: found[name] for name in each.choice.beside if name in found})
        if each.choice.beside
        else each
        for each, found in zip(done, seen, strict=True)
    ]


def _drafts(
    parts: Parts, name: str, done: Sequence[Drafted], asked: Mapping[int, Budget], guard: Guard
) -> dict[int, Draft]:
    """Checked drafts of one drafter for some of the sequences; an empty one where it failed or has no room."""
    requests = {
        i: DraftRequest(
            done[i].context, done[i].session.states[name], parts.allowance.budget(done[i].session, name, budget)
        )
        for i, budget in asked.items()
    }
    requests = {
        i: r for i, r in requests.items() if r.budget.max_nodes and r.budget.max_depth and r.budget.max_branches
    }
    drafts = dict.fromkeys(asked, Draft.empty())
    if not requests:
        return drafts
    drafter = parts.drafters[name]
    started = time.perf_counter()
    raw = guard.call(
        f"drafter '{name}'",
        [done[i].session for i in requests],
        lambda: checked_drafts(drafter.propose(list(requests.values())), len(requests)),
        [Draft.empty()] * len(requests),
    )
    share = (time.perf_counter() - started) / len(requests)
    for i, draft in zip(requests, raw, strict=True):
        session = done[i].session
        session.metrics.record_proposal(name, share)
        check = partial(_checked, parts, name, draft, requests[i].budget)
        drafts[i] = _legal(session, guard.call(f"drafter '{name}'", [session], check, Draft.empty()))
    return drafts


def _checked(parts: Parts, name: str, draft: Draft, budget: Budget) -> Draft:
    terms = Terms(budget, parts.backend.vocab_size, parts.drafters[name].emits, parts.verifier.accepts)
    return checked_draft(draft, terms)


def _legal(session: Session, draft: Draft) -> Draft:
    """The draft without nodes that the request's constraint rules out. Sampled ones stay: dropping them would bias."""
    if session.constraint is None or draft.q is not None:
        return draft
    try:
        return Constrained(session.constraint, draft).legal()
    except DraftmuxError:
        return Draft.empty()  # the sampler meets the same fault, and says so where it matters
