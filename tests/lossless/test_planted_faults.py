"""Faults of the loop, each with a property that notices: verifier, books of the cache, distrust, state.

The other invariants have theirs in the files beside this one: stopping, sampling, tree passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from draftmux.backends.scripted import ScriptedTarget
from draftmux.engine import accepting, guard
from draftmux.engine.guard import Guard
from draftmux.engine.scheduler import Scheduler
from draftmux.generation import Generation
from draftmux.testing.drafters import Alternating, Oracle, TreeOracle, Turn
from draftmux.testing.harness import Trial, assemble
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.properties import check_alone, check_raise, check_skip
from draftmux.testing.reference import Ask
from draftmux.testing.rogues import Rogue, RogueVerifier
from draftmux.testing.routers import ByRequest
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Acceptance, Draft
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from draftmux.engine.step import Parts

FAULTS = Faults()  # filled by the decorators below, before pytest reads it


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


# The properties, on fixed inputs.


def requests(temperature: float = 0.0) -> list[Ask]:
    settings = [Generation(max_new_tokens=11 + 2 * i, temperature=temperature, seed=i) for i in range(3)]
    return [Ask((1, 3 + i), generation, f"request-{i}") for i, generation in enumerate(settings)]


def speculates() -> None:
    """A tree oracle over a small law; the tokens by the book."""
    trial = Trial.prepare(scripted(hash_law(8, 6), 6), requests())
    trial.check(lambda truths: {"tree": TreeOracle(truths, 6, k=5)}, max_batch=2)


def survives(mode: str) -> None:
    """A rogue drafter for one of three requests, skipped and raised."""
    trial = Trial.prepare(scripted(hash_law(5, 7), 7, max_length=20), requests(temperature=1.0))
    oracle = Oracle(trial.truths, k=2)
    router = ByRequest({"request-1": "rogue"}, "oracle")

    def parts(policy: Any) -> Parts:
        rogue = Rogue(mode, oracle, 7, frozenset(["request-1"]))
        return assemble(trial.target, {"oracle": oracle, "rogue": rogue}, router, policy=policy)

    check_skip(trial, parts("skip"), "drafter 'rogue'", max_batch=3)
    check_raise(trial, parts("raise"), "drafter 'rogue'", ["request-1"])


def survives_wrong_decisions() -> None:
    trial = Trial.prepare(scripted(hash_law(5, 7), 7), requests(temperature=1.0))
    for mode in ("token-v", "node-beyond", "node-twice"):
        rogue = RogueVerifier(mode, ExactMatch(), 7)
        oracle = {"oracle": Oracle(trial.truths, k=2)}
        check_skip(trial, assemble(trial.target, oracle, verifier=rogue, policy="skip"), "verifier")


def keeps_requests_apart() -> None:
    trial = Trial.prepare(scripted(hash_law(8, 6), 6), requests())
    alternating = Alternating(TreeOracle(trial.truths, 6, k=2))
    check_alone(trial, assemble(trial.target, {"alternating": alternating}), max_batch=3)


# Lossless: the verifier and the tree.


@FAULTS.breaks(speculates)
def the_verifier_trusts_the_draft(patch: Any) -> None:
    def accept(self: Any, context: Any, draft: Draft, scores: Any, sampler: Any) -> Acceptance:
        path = draft.path_to(len(draft) - 1)
        return Acceptance(tuple(path), sampler.pick(path[-1] if path else -1))

    patch.setattr(ExactMatch, "accept", accept)


@FAULTS.breaks(speculates)
def a_child_is_looked_up_by_its_token_alone(patch: Any) -> None:
    def children(draft: Draft) -> dict[tuple[int, int], int]:
        by_token = {token: node for node, token in enumerate(draft.tokens.tolist())}
        return {(node, token): child for node in range(-1, len(draft)) for token, child in by_token.items()}

    patch.setattr(Draft, "children", property(children))


@FAULTS.breaks(speculates)
def the_bonus_token_is_dropped_after_a_full_accept(patch: Any) -> None:
    def accept(*loop: Any) -> Acceptance:
        right = original(*loop)
        return Acceptance(right.path[:-1], right.token) if len(right.path) > 1 else right

    original = ExactMatch.accept
    patch.setattr(ExactMatch, "accept", accept)


# The books of the cache.


@FAULTS.breaks(speculates)
def the_cache_keeps_as_many_nodes_as_were_accepted_not_which(patch: Any) -> None:
    def commit(self: Any, sequence: Any, path: Any) -> None:
        sequence.processed += [sequence.scored.root, *sequence.scored.draft.tokens[: len(path)].tolist()]

    patch.setattr(ScriptedTarget, "commit", commit)


@FAULTS.breaks(speculates)
def the_cache_forgets_the_root(patch: Any) -> None:
    def commit(self: Any, sequence: Any, path: Any) -> None:
        sequence.processed += sequence.scored.draft.tokens[list(path)].tolist()

    patch.setattr(ScriptedTarget, "commit", commit)


@FAULTS.breaks(speculates)
def an_ended_request_stays_open(patch: Any) -> None:
    patch.setattr(Scheduler, "_retire", lambda self, session: self._running.remove(session))


# Distrust.


@FAULTS.breaks(lambda: survives("id-v"))
def ids_are_not_checked(patch: Any) -> None:
    patch.setattr(guard, "_check_ids", lambda *_: None)


@FAULTS.breaks(lambda: survives("too-many"))
def the_budget_is_not_checked(patch: Any) -> None:
    patch.setattr(guard, "_check_budget", lambda *_: None)


@FAULTS.breaks(lambda: survives("nan-q"))
def q_is_not_checked(patch: Any) -> None:
    patch.setattr(guard, "_check_q", lambda *_: None)


@FAULTS.breaks(survives_wrong_decisions)
def decisions_are_not_checked(patch: Any) -> None:
    patch.setattr(accepting, "checked_acceptance", lambda acceptance, *_: acceptance)


@FAULTS.breaks(lambda: survives("raises"))
def faults_are_not_counted(patch: Any) -> None:
    patch.setattr(Guard, "_blame", lambda *_: None)


@FAULTS.breaks(lambda: survives("exits"))
def plugins_may_exit(patch: Any) -> None:
    def call(self: Any, plugin: str, sessions: Any, work: Any, fallback: Any) -> Any:
        try:
            return original(self, plugin, sessions, work, fallback)
        except SystemExit as error:
            raise AssertionError("a plugin ended the process") from error

    original = Guard.call
    patch.setattr(guard, "from_outside", lambda error: isinstance(error, SystemExit))
    patch.setattr(Guard, "call", call)


@FAULTS.breaks(keeps_requests_apart)
def requests_share_a_drafters_state(patch: Any) -> None:
    def begin(self: Any, session: Any) -> None:
        original(self, session)
        session.states = shared.setdefault("states", session.states)

    shared: dict[str, Any] = {}
    original = Scheduler._begin
    patch.setattr(Scheduler, "_begin", begin)


@FAULTS.breaks(keeps_requests_apart)
def a_drafter_counts_for_all_requests_together(patch: Any) -> None:
    turn = Turn(0, None)
    patch.setattr(Alternating, "begin", lambda self, context: turn)
