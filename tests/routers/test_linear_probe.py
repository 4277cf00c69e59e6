"""The probe router: which state it reads, when it copies, what it refuses; and that a lying probe changes no text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.errors import ModelError
from draftmux.generation import Generation
from draftmux.models.fingerprint import fingerprint
from draftmux.protocols import Resources
from draftmux.routers.gate import BoundGate
from draftmux.routers.linear_probe.artefact import CONFIG, WEIGHTS, About, read_about, save
from draftmux.routers.linear_probe.router import LinearProbe, ProbeGate
from draftmux.routers.linear_probe.scorer import Scorer
from draftmux.routers.match_length import Matches
from draftmux.testing import check_router
from draftmux.testing import strategies as some
from draftmux.testing.conformance.subject import Setting
from draftmux.testing.drafters import Oracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted, tiny_target
from draftmux.types import Acceptance, Choice, Context, Draft, Step, Tap

TAP = Tap(1, "attn_out")
ABOUT = About(str(TAP), 1, 0.5, 2, 16, "tiny", "", 5, 1e-3)


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("llama", taps=(TAP,))


@pytest.fixture
def probe(target: Any, tmp_path: Path) -> Path:
    size = target.model.config.hidden_size
    weight = torch.linspace(-1, 1, size)
    save(tmp_path / "probe", weight, evolve(ABOUT, hidden_size=size, target_fingerprint=fingerprint(target.model)))
    return tmp_path / "probe"


def bound(target: Any, probe: Path, **more: Any) -> Any:
    router = LinearProbe(**{"probe": str(probe), "copy": "copy", **more})
    return router.bind(Resources(backend=target))


def test_needs_its_state_and_the_inner_routers(probe: Path) -> None:
    assert LinearProbe(probe=str(probe), copy="copy").needs.taps == (TAP,)
    inner = LinearProbe(probe=str(probe), copy="copy", min_match=3)
    outer = LinearProbe(probe=str(probe), copy="copy", otherwise=inner)
    assert outer.needs.taps == (TAP,) and outer.uses() == ("copy",)


def test_the_score_is_that_of_a_forward_over_the_committed_text(target: Any, probe: Path) -> None:
    """After copied, drafted and plain steps alike: the state of the position before the root."""
    router = bound(target, probe, threshold=0.5, otherwise="oracle")
    asks = [Ask((1, 2, 3, 1, 2), Generation(max_new_tokens=24, ignore_eos=True), "one")]
    plain = serve(assemble(target), asks)["one"].finished.tokens
    scores: list[tuple[int, float]] = []
    scorer = router.gate.scorer

    class Noting(Scorer):
        def score(self, context: Context) -> float:
            scores.append((len(context.tokens), super().score(context)))
            return float(len(scores) % 2)

    router.gate = evolve(router.gate, scorer=Noting(TAP, scorer.weight), matches=Matches(1))
    drafters = {"copy": ContextCopy(min_match=1), "oracle": Oracle([(1, 2, 3, 1, 2, *plain)], 2)}
    metrics = serve(assemble(target, drafters, router), asks)["one"].finished.metrics
    assert metrics.steps_by_drafter["copy"] > 0 and metrics.steps_by_drafter["oracle"] > 0
    text = [1, 2, 3, 1, 2, *plain]
    states = target.open(text)
    target.close(states.sequence)
    for length, score in scores:
        expected = float((states.taps[TAP][length - 2].float() @ scorer.weight).sigmoid())
        assert score == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("decides", "threshold", "copies"),
    [
        ("probe-and-ngram", 0.0, True),
        ("probe-and-ngram", 1.0, False),
        ("probe", 0.0, True),
        ("ngram", 1.0, True),
        ("neither", 0.0, False),
    ],
)
def test_gates(target: Any, probe: Path, decides: str, threshold: float, copies: bool) -> None:
    router = bound(target, probe, decides=decides, threshold=threshold, min_match=2)
    gate = router.gate
    readings = {gate.scorer.reading: 0.5}
    context = Context("one", np.array([1, 2, 3, 1, 2]), 5, 9, {}, (), Generation(), readings=readings)
    assert gate.opens(gate.watch(context), context) is copies
    unmatched = evolve(context, tokens=np.array([1, 2, 3, 4, 5]))
    assert gate.opens(gate.watch(unmatched), unmatched) is (copies and "ngram" not in decides)


def test_hold_and_refractory(target: Any, probe: Path) -> None:
    """A copy that was accepted to its end is gone on with; after misses in a row four steps do not copy."""
    tokens = np.array([1, 2, 3, 1, 2])
    context = Context("one", tokens, 5, 9, {}, (), Generation())  # without a state the probe says 0

    def step(drafter: str, accepted: int) -> Step:
        acceptance = Acceptance(tuple(range(accepted)), 1)
        return Step(Choice(drafter), drafter, Draft.chain([1, 2]), acceptance, (1,) * (accepted + 1), {}, {})

    gate = bound(target, probe, threshold=1.0, hold=True).gate
    state = gate.watch(context)
    for accepted, opened in ((0, False), (2, True), (1, False)):
        gate.saw(state, step("copy", accepted))
        assert gate.opens(state, context) is opened
    gate.saw(state, step("other", 2))
    assert not gate.opens(state, context)
    gate = bound(target, probe, threshold=0.0, refractory=2).gate
    state, opened = gate.watch(context), []
    for accepted in (0, 0, 2, 0, 0, 0, 0, 0):
        opened.append(gate.opens(state, context))
        gate.saw(state, step("copy" if opened[-1] else "other", accepted if opened[-1] else 0))
    assert opened == [True, True, False, False, False, False, True, True]


def test_a_prompt_of_one_token_has_no_state(target: Any, probe: Path) -> None:
    router = bound(target, probe)
    found = serve(
        assemble(target, {"copy": ContextCopy(min_match=2)}, router), [Ask((1,), Generation(max_new_tokens=6))]
    )
    assert len(found["request"].finished.tokens) == 6 or found["request"].finished.finish_reason == "stop"


@settings(max_examples=15, deadline=None)
@given(data=st.data(), seed=some.SEEDS, batch=st.sampled_from((1, 3)))
def test_a_probe_that_lies_changes_no_text(target: Any, data: Any, seed: int, batch: int) -> None:
    """Whatever it answers, and nothing of one sequence shows in another."""
    rng = np.random.default_rng(seed)
    options = LinearProbe(probe="unused", copy="tree", otherwise="random")

    class Liar(Scorer):
        def score(self, context: Context) -> float:
            return float(rng.random())

    class Unread(ProbeGate):
        readings = ()

    gate = Unread(evolve(options, decides="probe"), Matches(1), Liar(TAP, torch.ones(4)), 0.5)
    router = BoundGate(options, gate, None)
    scripted_target = scripted(hash_law(seed % 1000, 6), 6)
    trial = Trial.prepare(scripted_target, data.draw(some.asks(scripted_target, count=3)))
    parts = assemble(scripted_target, data.draw(some.drafter_sets(6))(trial.truths), router)
    outcomes = serve(parts, trial.asks, batch)
    for name, outcome in outcomes.items():
        if not trial.expected[name].failed:
            assert outcome.finished.tokens == trial.expected[name].tokens


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target_fingerprint": "0" * 64, "target": "another"}, "was trained for another"),
        ({"hidden_size": 7}, "with 7 finite numbers|for states of 7"),
        ({"format": 2}, "format 2 is not 1"),
        ({"shift": 5}, "shift"),
        ({"threshold": 2.0}, "threshold"),
        ({"min_match": 0}, "from 1 to 128"),
        ({"min_match": 2.5}, "whole number"),
        ({"target_fingerprint": None}, "which weights"),
        ({"tap": "nowhere"}, "nowhere"),
        ({"more": 1}, "more"),
    ],
)
def test_what_does_not_fit_is_refused(target: Any, probe: Path, change: dict[str, Any], said: str) -> None:
    path = probe / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(ModelError, match=said):
        bound(target, probe)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "must hold 'weight'"),
        ({"weight": torch.zeros(3)}, "must hold 'weight'"),
        ({"weight": torch.full((16,), float("nan"))}, "finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(target: Any, probe: Path, tensors: Any, said: str) -> None:
    save_file(tensors, probe / WEIGHTS)
    with pytest.raises(ModelError, match=said):
        bound(target, probe)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_in_other_number_formats_are_read(target: Any, probe: Path, dtype: torch.dtype) -> None:
    save_file({"weight": torch.linspace(-1, 1, target.model.config.hidden_size).to(dtype)}, probe / WEIGHTS)
    ask = Ask((1, 2, 3, 1, 2), Generation(max_new_tokens=12, ignore_eos=True), "one")
    parts = assemble(target, {"copy": ContextCopy(min_match=1)}, bound(target, probe, threshold=0.0, min_match=1))
    metrics = serve(parts, [ask])["one"].finished.metrics
    assert metrics.steps_by_drafter["copy"] > 0 and not metrics.faults


def test_missing_files_are_named(target: Any, probe: Path, tmp_path: Path) -> None:
    (probe / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=WEIGHTS):
        bound(target, probe)
    with pytest.raises(ModelError, match=CONFIG):
        bound(target, tmp_path)
    assert read_about(str(tmp_path), download=False) is None


def test_a_target_without_states_is_refused(probe: Path) -> None:
    with pytest.raises(ModelError, match="hidden states"):
        bound(scripted(hash_law(1, 5), 5), probe)


def test_it_passes_the_kit(probe: Path) -> None:
    setting = Setting(target=lambda taps: tiny_target("llama", taps=taps))
    options = {"probe": str(probe), "copy": "one", "otherwise": "two", "min_match": 1, "threshold": 0.5}
    assert check_router("linear-probe", setting=setting, **options).doubtful == []
