"""Routers that open the way to a copy: when, and who is asked elsewhere, be it a drafter or another router."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.errors import ModelError
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routers.accepted_length.artefact import FILE, Regressor, read_regressor
from draftmux.routers.accepted_length.features import NAMES, Course, TokenClasses
from draftmux.routers.accepted_length.router import AcceptedLength
from draftmux.routers.accepted_length.train import ridge
from draftmux.routers.bandit.router import Arm, Bandit
from draftmux.routers.fixed import Fixed
from draftmux.routers.match_length import MatchLength
from draftmux.routers.replays import Copying, steps
from draftmux.testing import check_router
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Oracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted

NESTED = Bandit(arms=[Arm(drafter="oracle"), Arm(drafter="corrupt"), Arm()], policy="full-information", reward="length")


@pytest.fixture
def regressor(tmp_path: Path) -> str:
    Regressor(dict.fromkeys(NAMES, 0.1), 0.5, 1, 4, 8).save(tmp_path)
    return str(tmp_path)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), target=some.hash_targets(), batch=st.sampled_from((1, 3)), inner=st.booleans())
def test_a_router_within_a_router_changes_no_text(data: Any, target: Any, batch: int, inner: bool) -> None:
    trial = Trial.prepare(target, data.draw(some.asks(target, count=3)))
    router = MatchLength(copy="tree", otherwise=NESTED if inner else "oracle", min_match=1)
    trial.check(data.draw(some.drafter_sets(target.vocab_size)), router.bind(Resources(backend=target)), batch)


def test_the_inner_router_is_asked_where_the_gate_is_shut() -> None:
    target = scripted(hash_law(3, 5), 5)
    ask = Ask((1, 2), Generation(max_new_tokens=40), "one")
    truths = Trial.prepare(target, [ask]).truths
    drafters = {"copy": ContextCopy(min_match=3), "oracle": Oracle(truths, 2)}
    router = MatchLength(copy="copy", otherwise=Fixed(drafter="oracle"), min_match=3).bind(Resources(backend=target))
    metrics = serve(assemble(target, drafters, router), [ask])["one"].finished.metrics
    assert metrics.steps_by_drafter["copy"] > 0 and metrics.steps_by_drafter["oracle"] > 0
    assert router.uses() == ("copy", "oracle")


def test_least_expected_tokens(regressor: str) -> None:
    target = scripted(hash_law(3, 5), 5)
    ask = Ask((1, 2, 1, 2), Generation(max_new_tokens=60), "one")
    copied = {}
    for least in (0.0, 3.0, 1e9):
        router = AcceptedLength(regressor=regressor, copy="copy", least=least).bind(Resources(backend=target))
        metrics = serve(assemble(target, {"copy": ContextCopy(min_match=1)}, router), [ask])["one"].finished.metrics
        copied[least] = metrics.steps_by_drafter["copy"]
    assert copied[0.0] > copied[3.0] >= copied[1e9] == 0


def test_features_by_hand() -> None:
    tokens = np.array([7, 1, 2, 3, 9, 1, 2, 4, 1, 2])
    course = Course.begin(tokens[:5], 5, 2)
    for accepted in (None, 3, None, None):
        course.note(accepted)
    found = dict(zip(NAMES, course.features(tokens, TokenClasses()), strict=True))  # type: ignore[arg-type]
    assert found["match"] == 2 and found["longest match"] == 2 and found["hits"] == pytest.approx(np.log1p(2))
    assert found["agreement"] == 0.5 and found["recent"] == found["last"] == pytest.approx(np.log1p(3))
    assert found["steps since"] == pytest.approx(np.log1p(2)) and found["position"] == pytest.approx(np.log1p(5))
    assert found["word"] == 1 and found["digits"] == 0
    assert course.features(np.array([7, 1, 2, 3, 9, 1, 2, 4, 1, 2, 8]), TokenClasses()) is None


def test_ridge_finds_what_made_the_lengths() -> None:
    rng = np.random.default_rng(0)
    features, weights = rng.normal(3, 2, (400, 5)), np.array([0.2, -0.1, 0.0, 0.3, 0.05])
    lengths = np.expm1(features @ weights + 0.7)
    found, bias = ridge(features, lengths, 0.0)
    assert np.allclose(found, weights) and bias == pytest.approx(0.7)
    shrunk, _ = ridge(features, lengths, 100.0)
    assert np.abs(shrunk).max() < 0.05


@pytest.mark.parametrize("gap", [1, 5])
def test_replayed_copies_are_those_of_real_decoding(gap: int) -> None:
    """Token by token, with the gate open everywhere and shut at some places."""
    for seed in range(6):
        target = scripted(hash_law(seed, 4), 4)
        ask = Ask((1, 2, 1), Generation(max_new_tokens=60, ignore_eos=True), "one")
        truth = Trial.prepare(target, [ask]).expected["one"]
        ids = (*ask.tokens, *truth.tokens)
        copying = Copying(2, 3, 6)
        found = list(steps(ids, 3, copying, lambda root: root % gap == 0))

        class Places(Fixed):
            def choose(self, state: Any, context: Any, drafters: Any) -> Any:
                choice = super().choose(state, context, drafters)
                return choice if (len(context.tokens) - 1) % gap == 0 else type(choice)(None)

        drafter = ContextCopy(min_match=2, max_branches=3, max_depth=6)
        outcome = serve(assemble(target, {"copy": drafter}, Places(drafter="copy")), [ask])["one"]
        assert outcome.finished.metrics.steps == len(found)
        lengths = [len(delta.pieces) for delta in outcome.deltas]
        assert lengths[:-1] == [accepted + 1 for _, _, accepted, _ in found][:-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 9}, "format 9 is not 1"),
        ({"weights": {"match": 1.0}}, "weights are for"),
        ({"bias": float("nan")}, "no number"),
        ({"extra": 1}, "extra"),
        ({"min_match": 2.5}, "whole number"),
        ({"min_match": 10**9}, "from 1 to 128"),
        ({"weights": 3}, "cannot be used"),
    ],
)
def test_a_regressor_that_is_not_understood_is_refused(regressor: str, change: dict[str, Any], said: str) -> None:
    path = Path(regressor) / FILE
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(ModelError, match=said):
        read_regressor(regressor)


def test_other_copies_than_those_that_were_learned_from_are_warned_of(regressor: str) -> None:
    copy = ContextCopy(min_match=1, max_branches=4, max_depth=9)
    with pytest.warns(UserWarning, match=r"max_depth 8; drafter 'copy' has 9"):
        AcceptedLength(regressor=regressor, copy="copy").gate(Resources(drafters={"copy": copy}))


def test_a_probe_beside_a_regressor_that_knows_none_is_refused(regressor: str) -> None:
    with pytest.raises(ModelError, match="drop 'probe'"):
        AcceptedLength(regressor=regressor, copy="copy", probe="any").gate(Resources())


def test_a_regressor_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="train accepted-length"):
        read_regressor(str(tmp_path))


def test_it_passes_the_kit(regressor: str) -> None:
    assert check_router("accepted-length", regressor=regressor, copy="one", otherwise="two", least=1.0).doubtful == []
