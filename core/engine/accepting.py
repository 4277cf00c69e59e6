"""Decisions for a batch: the verifier is asked, its answers are checked, and each is cut where no token can follow.

A verifier with a model of its own decides for all sequences of a step at once (`accept_all`); others one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from draftmux.engine.guard import allowed_acceptance, checked_acceptance, checked_acceptances
from draftmux.engine.session import UNUSABLE
from draftmux.protocols import VerifyRequest
from draftmux.tree import ROOT
from draftmux.types import Acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.engine.proposing import Drafted
    from draftmux.engine.session import Session
    from draftmux.engine.step import Parts
    from draftmux.sampling import Sampler

UNDECIDED = object()


def accept(parts: Parts, drafted: Sequence[Drafted], samplers: Sequence[Sampler]) -> list[Acceptance]:
    """Ask the verifier; where it fails, the token stands that plain decoding would pick."""
    asked = _asked_together(parts, drafted, samplers)
    return [_settled(parts, d, sampler, raw) for d, sampler, raw in zip(drafted, samplers, asked, strict=True)]


def _asked_together(parts: Parts, drafted: Sequence[Drafted], samplers: Sequence[Sampler]) -> Sequence[Any]:
    """What the verifier says of all sequences at once, not yet looked at; UNDECIDED of those it must be asked alone."""
    undecided = [UNDECIDED] * len(drafted)
    if len(drafted) < 2 or not hasattr(parts.verifier, "accept_all"):
        return undecided
    usable = [i for i, d in enumerate(drafted) if d.session.verifier_state is not UNUSABLE]
    requests = [_request(drafted[i], samplers[i]) for i in usable]
    verifier: Any = parts.verifier
    found = parts.guard.call(
        "verifier",
        [],  # whose fault it is shows when each is asked alone
        lambda: checked_acceptances(verifier.accept_all(requests), len(requests)),
        [UNDECIDED] * len(requests),
    )
    for i, raw in zip(usable, found, strict=True):
        undecided[i] = raw
    return undecided


def _request(drafted: Drafted, sampler: Sampler) -> VerifyRequest:
    state = drafted.session.verifier_state
    return VerifyRequest(drafted.context, drafted.draft, sampler.scores, sampler, state)


def _settled(parts: Parts, drafted: Drafted, sampler: Sampler, raw: Any) -> Acceptance:
    """One sequence's decision, checked and cut."""
    session, draft = drafted.session, drafted.draft

    def decide() -> Acceptance:
        found = _asked_alone(parts, drafted, sampler) if raw is UNDECIDED else raw
        return allowed_acceptance(checked_acceptance(found, draft, parts.backend.vocab_size), sampler)

    acceptance = None
    if session.verifier_state is not UNUSABLE:
        acceptance = parts.guard.call("verifier", [session], decide, None)
    acceptance = _before_dead_end(acceptance or Acceptance((), sampler.pick(ROOT)), session, sampler)
    return _with_logprobs(acceptance, drafted, sampler) if drafted.context.generation.logprobs else acceptance


def _asked_alone(parts: Parts, drafted: Drafted, sampler: Sampler) -> Any:
    verifier: Any = parts.verifier
    if not hasattr(verifier, "accept_all"):
        return verifier.accept(drafted.context, drafted.draft, sampler.scores, sampler)
    [found] = checked_acceptances(verifier.accept_all([_request(drafted, sampler)]), 1)
    return found


def _before_dead_end(acceptance: Acceptance, session: Session, sampler: Sampler) -> Acceptance:
    """The run up to a token after which none can follow. It may end the request; if not, the next step fails it."""
    if ROOT in sampler.dead_ends:
        session.error = session.error or sampler.dead_ends[ROOT]
        return Acceptance((), 0)
    for length, node in enumerate(acceptance.path):
        if node in sampler.dead_ends:
            return Acceptance(acceptance.path[:length], int(sampler.draft.tokens[node]))
    return acceptance


def _with_logprobs(acceptance: Acceptance, drafted: Drafted, sampler: Sampler) -> Acceptance:
    nodes = (ROOT, *acceptance.path)
    tokens = (*drafted.draft.tokens[list(acceptance.path)].tolist(), acceptance.token)
    values = tuple(sampler.logprob(node, token) for node, token in zip(nodes, tokens, strict=True))
    return evolve(acceptance, logprobs=values)
