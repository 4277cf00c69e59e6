"""Plugins that misbehave cost speed, never a token: skipped they are counted, raised they end only what they serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from attrs import define

from draftmux.backends.scripted import ScriptedTarget
from draftmux.engine.scheduler import Scheduler
from draftmux.errors import ModelError, PluginError
from draftmux.generation import Generation
from draftmux.testing.drafters import Oracle
from draftmux.testing.harness import Trial, assemble, check_outcome, serve
from draftmux.testing.properties import check_raise, check_skip
from draftmux.testing.reference import Ask
from draftmux.testing.rogues import (
    DECISIONS,
    DRAFTER_MODES,
    HARMLESS,
    ROUTER_MODES,
    Rogue,
    RogueRouter,
    RogueVerifier,
)
from draftmux.testing.routers import ByRequest
from draftmux.testing.targets import BACKENDS, hash_law, model_law, scripted, tiny_target
from draftmux.types import Acceptance, Accepts
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from draftmux.engine.step import Parts
    from draftmux.protocols import Opened

SIZE = 7
VICTIM = "request-1"
GUILTY = [mode for mode in DRAFTER_MODES if mode not in HARMLESS]


def trial(temperature: float = 1.0) -> Trial:
    """Four requests of different length over a scripted law; room for the context limit to matter."""
    target = scripted(hash_law(5, SIZE), SIZE, eos_ids={2}, max_length=22)
    settings = {"temperature": temperature, "ignore_eos": True, "logprobs": True}
    return Trial.prepare(
        target,
        [Ask((1, 3), Generation(max_new_tokens=9 + 4 * i, seed=i, **settings), f"request-{i}") for i in range(4)],  # type: ignore[arg-type]
    )


def rogue_drafter(of: Trial, mode: str, policy: Any, victims: Sequence[str] | None = None) -> Parts:
    """A rogue over an oracle for the victims, the oracle for the others."""
    oracle = Oracle(of.truths, k=2)
    rogue = Rogue(mode, oracle, of.target.vocab_size, None if victims is None else frozenset(victims))
    router = ByRequest({} if victims is None else dict.fromkeys(victims, "rogue"), "oracle" if victims else "rogue")
    return assemble(of.target, {"rogue": rogue, "oracle": oracle}, router, policy=policy)


@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("mode", GUILTY)
def test_a_skipped_drafter_changes_no_token(mode: str, temperature: float, max_batch: int) -> None:
    requests = trial(temperature)
    check_skip(requests, rogue_drafter(requests, mode, "skip"), "drafter 'rogue'", max_batch)


@pytest.mark.parametrize("mode", GUILTY)
def test_a_skipped_drafter_hurts_no_neighbour(mode: str) -> None:
    requests = trial()
    outcomes = check_skip(requests, rogue_drafter(requests, mode, "skip", [VICTIM]), "drafter 'rogue'", max_batch=4)
    assert [name for name, outcome in outcomes.items() if outcome.finished.metrics.faults] == [VICTIM]


@pytest.mark.parametrize("mode", GUILTY)
def test_a_raising_drafter_ends_only_its_own_requests(mode: str) -> None:
    requests = trial()
    check_raise(requests, rogue_drafter(requests, mode, "raise", [VICTIM]), "drafter 'rogue'", [VICTIM])


@pytest.mark.parametrize("mode", HARMLESS)
def test_a_slow_or_clueless_drafter_is_only_slow(mode: str) -> None:
    requests = trial()
    for name, outcome in serve(rogue_drafter(requests, mode, "raise"), requests.asks, max_batch=2).items():
        check_outcome(outcome, requests.expected[name])
        assert not outcome.finished.metrics.faults
        assert bool(outcome.finished.metrics.accepted) == (mode == "sleeps")


@pytest.mark.parametrize("mode", ["negative-id", "id-v", "id-beyond", "too-many", "parents"])
def test_no_illegal_node_reaches_a_model(mode: str) -> None:
    asks = [Ask((1, 2, 3), Generation(max_new_tokens=9), f"request-{i}") for i in range(2)]
    requests = Trial.prepare(tiny_target("gpt2", positions=12), asks, model_law("gpt2", 12))
    check_skip(requests, rogue_drafter(requests, mode, "skip", [VICTIM]), "drafter 'rogue'", max_batch=2)


@pytest.mark.parametrize("mode", ROUTER_MODES)
def test_a_rogue_router_changes_no_token(mode: str) -> None:
    requests = trial()
    oracle = {"oracle": Oracle(requests.truths, k=3)}
    check_skip(requests, assemble(requests.target, oracle, RogueRouter(mode), policy="skip"), "router", 2)
    check_raise(requests, assemble(requests.target, oracle, RogueRouter(mode, frozenset([VICTIM]))), "router", [VICTIM])


@pytest.mark.parametrize("mode", sorted(DECISIONS))
def test_a_rogue_verifier_changes_no_token(mode: str) -> None:
    requests = trial()
    oracle = {"oracle": Oracle(requests.truths, k=3)}
    rogue = RogueVerifier(mode, ExactMatch(), SIZE)
    check_skip(requests, assemble(requests.target, oracle, verifier=rogue, policy="skip"), "verifier", 2)
    rogue = RogueVerifier(mode, ExactMatch(), SIZE, frozenset([VICTIM]))
    check_raise(requests, assemble(requests.target, oracle, verifier=rogue), "verifier", [VICTIM])


@define
class Loose:
    """Exact match whose decisions come in other types than plain integers, as arrays and tensors give them."""

    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = True
    accepts: ClassVar[Accepts] = Accepts(tree=True)

    form: Callable[[Acceptance], Acceptance]

    def bind(self, resources: Any) -> Loose:
        return self

    def accept(self, *loop: Any) -> Acceptance:
        return self.form(ExactMatch().accept(*loop))


@pytest.mark.parametrize("drafts", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        lambda right: Acceptance(list(right.path), right.token),
        lambda right: Acceptance(iter(right.path), right.token),
        lambda right: Acceptance(np.array(right.path, dtype=np.int64), np.int64(right.token)),
        lambda right: Acceptance(torch.tensor(right.path, dtype=torch.int64), torch.tensor(right.token)),
        lambda right: Acceptance(right.path, right.token, logprobs=(0.5,)),
    ],
    ids=["list", "iterator", "numpy", "torch", "logprobs-unasked"],
)
def test_a_verifier_may_answer_in_any_integers(form: Any, drafts: bool) -> None:
    run = trial().expected["request-0"].tokens
    target = scripted(hash_law(5, SIZE), SIZE, eos_ids={run[5]})
    requests = Trial.prepare(target, [Ask((1, 3), Generation(max_new_tokens=9, temperature=1.0, seed=0))])
    oracle = {"oracle": Oracle(requests.truths, k=3)}
    outcome = serve(assemble(target, oracle if drafts else {}, verifier=Loose(form)), requests.asks)["request"]
    check_outcome(outcome, requests.expected["request"])


def test_the_engine_serves_on_after_a_failure() -> None:
    """In the same scheduler, while others run, and in the next one."""
    requests = trial()
    parts = rogue_drafter(requests, "nan-q", "raise", [VICTIM])
    scheduler = Scheduler(parts, max_batch=1)
    for ask in requests.asks:
        scheduler.submit(ask.tokens, ask.generation, ask.request_id)
    ended = {delta.request_id: delta for delta in scheduler.run() if delta.result or delta.error}
    assert isinstance(ended[VICTIM].error, PluginError)
    for ask in requests.asks[2:]:
        result = ended[ask.request_id].result
        assert result is not None and result.tokens == requests.expected[ask.request_id].tokens
    check_outcome(serve(parts, requests.asks[:1])["request-0"], requests.expected["request-0"])


def test_a_prefill_that_fails_takes_no_other_request_down(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = trial()
    prefill = ScriptedTarget.open

    def fail(self: ScriptedTarget, tokens: Sequence[int]) -> Opened:
        if len(tokens) == 3:
            raise MemoryError("no room")
        return prefill(self, tokens)

    monkeypatch.setattr(ScriptedTarget, "open", fail)
    large = Ask((1, 2, 3), Generation(), "large")
    outcomes = serve(assemble(requests.target), [requests.asks[0], large, *requests.asks[1:]], max_batch=2)
    assert isinstance(outcomes.pop("large").error, ModelError)
    for name, outcome in outcomes.items():
        check_outcome(outcome, requests.expected[name])


@pytest.mark.parametrize("steps", range(1, 5))
def test_closing_the_stream_frees_every_sequence(steps: int) -> None:
    requests = trial()
    scheduler = Scheduler(assemble(requests.target, {"oracle": Oracle(requests.truths, k=2)}), max_batch=2)
    for ask in requests.asks:
        scheduler.submit(ask.tokens, ask.generation, ask.request_id)
    stream = scheduler.run()
    for _ in range(steps):
        next(stream)
    assert requests.target.open_sequences == 2
    stream.close()  # type: ignore[attr-defined]
    assert (requests.target.open_sequences, scheduler.active) == (0, [])


def test_a_cancelled_request_leaves_the_others_as_they_were() -> None:
    requests = trial()
    scheduler = Scheduler(assemble(requests.target, {"oracle": Oracle(requests.truths, k=2)}), max_batch=3)
    for ask in requests.asks:
        scheduler.submit(ask.tokens, ask.generation, ask.request_id)
    scheduler.advance()
    for gone in ("request-1", "request-1", "no-such-request", "request-3"):
        scheduler.cancel(gone)
    results = {delta.request_id: delta.result for delta in scheduler.run() if delta.result}
    assert {name: result.tokens for name, result in results.items()} == {
        name: requests.expected[name].tokens for name in ("request-0", "request-2")
    }
    assert requests.target.open_sequences == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("positions", [16, 256])
def test_a_model_batch_goes_on_when_a_request_is_cancelled(backend: str, positions: int) -> None:
    asks = [Ask((i, 2, 3 + i), Generation(max_new_tokens=12), f"request-{i}") for i in range(4)]
    requests = Trial.prepare(
        tiny_target("gemma3", backend=backend, positions=positions), asks, model_law("gemma3", positions)
    )
    scheduler = Scheduler(assemble(requests.target, {"oracle": Oracle(requests.truths, k=2)}), max_batch=3)
    for ask in asks:
        scheduler.submit(ask.tokens, ask.generation, ask.request_id)
    scheduler.advance()
    scheduler.cancel("request-0")  # its row is filled from the end
    results = {delta.request_id: delta.result for delta in scheduler.run() if delta.result}
    for name in ("request-1", "request-2", "request-3"):
        assert results[name].tokens == requests.expected[name].tokens  # type: ignore[union-attr]
