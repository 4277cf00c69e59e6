"""Rewards and advantages: by hand, their bounds, and what must hold of any group."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from draftmux.verifiers.cospec import reward as module
from draftmux.verifiers.cospec.reward import Reach, Reward, Rollout, advantages, refused_share, span

NONE = Rollout(True, (), (), 0, 0)
BLOCKS = st.builds(
    lambda drafted, cut, more: Reach(
        min(cut, drafted - 1), min(cut, drafted - 1) + min(more, drafted - cut if cut < drafted else 1), drafted
    ),
    st.integers(1, 8),
    st.integers(0, 7),
    st.integers(0, 8),
)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    decisions = draw(st.integers(0, 12))
    logprobs = draw(st.lists(st.floats(-40, 0), max_size=6))
    return Rollout(
        draw(st.booleans()), draw(st.lists(BLOCKS, max_size=5)), logprobs, decisions, draw(st.integers(0, decisions))
    )


def test_rewards_by_hand() -> None:
    blocks = (Reach(2, 5, 8), Reach(0, 0, 4), Reach(3, 4, 4))
    assert span(blocks) == pytest.approx((3 + 0 + 1) / (6 + 4 + 1))
    right = Rollout(True, blocks, (math.log(0.5),), 4, 1)
    assert Reward().of(right) == pytest.approx(1 + 4 / 11)
    assert Reward(right=0.0, span=2.0).of(right) == pytest.approx(8 / 11)
    wrong = Rollout(False, blocks, (math.log(1e-3), math.log(1e-6), math.log(1e-4), math.log(0.9)), 8, 2)
    assert Reward().of(wrong) == pytest.approx(-0.5 * (0 + 1 + 1 / 3 + 0) / 4 - 0.5 * 0.25)
    assert Reward(risk=0.0).of(wrong) == pytest.approx(-0.125) and Reward(refusal=0.0).of(wrong) < -0.16
    unformed = evolve(wrong, formed=False)
    assert Reward(malformed=-1.0).of(unformed) == -1.0 and Reward(malformed=-0.1).of(unformed) == Reward().of(wrong)
    assert Reward(malformed=-1.0).of(wrong) == Reward().of(unformed) == Reward().of(wrong)
    assert Reward().of(NONE) == 1.0 and Reward().of(Rollout(False, (), (), 0, 0)) == 0.0


@given(rollout=rollouts())
def test_rewards_stay_within_their_bounds(rollout: Rollout) -> None:
    found = Reward().of(rollout)
    assert 1 <= found <= 2 if rollout.right else -1 <= found <= 0


@given(matched=st.integers(0, 7), accepted=st.integers(0, 7), free=st.integers(1, 5))
def test_more_accepted_earns_more_and_what_matched_is_free(matched: int, accepted: int, free: int) -> None:
    accepted = max(matched, accepted)
    one, two = Reach(matched, accepted, 8), Reach(matched, min(8, accepted + 1), 8)
    assert span([two]) > span([one])
    assert span([one]) == span([Reach(matched + free, accepted + free, 8 + free)])


@given(
    rewards=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=2, max_size=16),
    scaled=st.booleans(),
)
def test_advantages_of_any_group(rewards: list[tuple[bool, float]], scaled: bool) -> None:
    right = [solved for solved, _ in rewards]
    earned = [1 + size if solved else -size for solved, size in rewards]
    found = advantages(earned, right, scaled)
    assert abs(found.sum()) < 1e-9 * max(1.0, np.abs(found).max())
    mixed = any(right) and not all(right)
    if not mixed or not scaled:
        assert np.abs(found).max() == 0 or np.mean(found**2) == pytest.approx(1, abs=0.01) or np.std(earned) < 1e-3
        return
    assert np.mean(found**2) == pytest.approx(1)
    solved = np.array(right)
    assert (found[solved] > 0).all() and (found[~solved] < 0).all()
    for group, sign in ((solved, 1), (~solved, -1)):
        order = np.argsort(np.abs(np.array(earned)[group]))
        assert (np.diff(sign * found[group][order]) >= -1e-12).all()


def test_groups_without_difference_teach_nothing() -> None:
    assert advantages([1.3, 1.3, 1.3], [True] * 3).tolist() == [0, 0, 0]
    assert advantages([1.3], [True]).tolist() == [0]


def test_centring_can_hold_a_right_rollout_against_the_policy() -> None:
    """Why mixed groups are scaled; and the planted fault that does not do it is seen."""
    earned, right = [1.0, 2.0, 2.0, -0.1], [True, True, True, False]
    assert advantages(earned, right, scaled=False)[0] < 0 < advantages(earned, right)[0]


@given(matched=st.integers(0, 6), kept=st.integers(0, 5), rest=st.integers(1, 5))
def test_matched_tokens_earn_nothing(matched: int, kept: int, rest: int) -> None:
    behind = Rollout(True, [Reach(matched, matched + kept, matched + kept + rest)], (), 1, 0)
    alone = Rollout(True, [Reach(0, kept, kept + rest)], (), 1, 0)
    assert Reward().of(behind) == pytest.approx(Reward().of(alone))


def test_a_free_prefix_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "span", lambda blocks: sum(b.accepted for b in blocks) / max(1, sum(b.drafted for b in blocks))
    )
    with pytest.raises(AssertionError):
        test_matched_tokens_earn_nothing()


def test_refusals_are_counted() -> None:
    assert refused_share(Rollout(False, (), (), 4, 3)) == 0.75 and refused_share(NONE) == 0
