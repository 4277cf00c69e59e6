"""The walk past mismatches: refusing all is exact, keeping all commits the draft, what is banned never stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.drafting import SequenceDrafter
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.testing import strategies as some
from draftmux.testing.drafters import Corrupt, keyed_rng, room
from draftmux.testing.harness import Trial, assemble, check_outcome, serve
from draftmux.testing.reference import Ask
from draftmux.testing.sampled import SampledTree
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Acceptance, Budget, Context, Draft
from draftmux.verifiers.cospec import random as chance
from draftmux.verifiers.cospec import walk as module
from draftmux.verifiers.cospec.random import RandomArbiter
from draftmux.verifiers.cospec.threshold import ThresholdArbiter
from draftmux.verifiers.cospec.walk import Walker
from draftmux.verifiers.rejection import Rejection

SIZE = 6
PROMPT = (1, 2, 3)


class Noise(SequenceDrafter):
    """Chains of random tokens."""

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        return Draft.chain(keyed_rng(3, context).integers(0, SIZE, room(budget, 5)))


def bound(verifier: Any, target: Any) -> Any:
    return verifier.bind(Resources(backend=target))


def text(target: Any, drafter: Any, verifier: Any, generation: Generation) -> Any:
    return serve(assemble(target, {"draft": drafter}, verifier=verifier), [Ask(PROMPT, generation, "r")])["r"].finished


def law_of(seed: int) -> Any:
    law = hash_law(seed, SIZE)

    def chances(prefix: tuple[int, ...]) -> list[float]:
        weights = np.exp(np.asarray(law(prefix[-1:])))
        return (weights / weights.sum()).tolist()  # type: ignore[no-any-return]

    return chances


WAYS: dict[str, Any] = {
    "rate": RandomArbiter(rate=0.0, basis="coupled"),
    "threshold": RandomArbiter(rate=1.0, threshold=1.5, basis="coupled", rescore=True),
    "capped": RandomArbiter(rate=1.0, max_overrides_per_block=0, basis="coupled"),
}


def refuse_all(seed: int, way: str, generation: Generation) -> None:
    """Two requests in a batch, which must write what plain decoding writes."""
    target = scripted(hash_law(seed, SIZE), SIZE, eos_ids=(0,))
    asks = [Ask((1, 2), generation, "a"), Ask((2, 1, 4), evolve(generation, seed=generation.seed + 1), "b")]
    trial = Trial.prepare(target, asks)
    drafter = Corrupt(trial.truths, SIZE, 5, 2)
    found = serve(assemble(target, {"draft": drafter}, verifier=bound(WAYS[way], target)), asks, 2)
    for name, outcome in found.items():
        check_outcome(outcome, trial.expected[name])


@given(seed=some.SEEDS, way=st.sampled_from(sorted(WAYS)), data=st.data())
@settings(max_examples=60)
def test_refusing_all_is_plain_decoding(seed: int, way: str, data: st.DataObject) -> None:
    refuse_all(seed, way, data.draw(some.generations(SIZE, end_ids=(0,))))


@given(seed=some.SEEDS, temperature=st.sampled_from((0.4, 1.0)))
@settings(max_examples=40)
def test_refusing_all_residuals_is_rejection_sampling(seed: int, temperature: float) -> None:
    generation = Generation(temperature=temperature, max_new_tokens=20, seed=seed, ignore_eos=True)
    target, drafter = scripted(hash_law(seed, SIZE), SIZE), SampledTree(law_of(seed + 1), (1, 1, 1, 1))
    ours = text(target, drafter, bound(RandomArbiter(rate=0.0), target), generation)
    theirs = text(target, drafter, Rejection(), generation)
    assert ours.tokens == theirs.tokens and ours.metrics.steps == theirs.metrics.steps


@given(seed=some.SEEDS, temperature=st.sampled_from((0.0, 1.0)), basis=st.sampled_from(("residual", "coupled")))
@settings(max_examples=40)
def test_keeping_all_commits_every_draft_and_the_targets_next_token(seed: int, temperature: float, basis: str) -> None:
    target = scripted(hash_law(seed, SIZE), SIZE)
    generation = Generation(temperature=temperature, max_new_tokens=23, seed=seed)
    found = text(target, Noise(), bound(RandomArbiter(rate=1.0, basis=basis), target), generation)
    at, steps = 0, 0
    while at < 23:
        context = Context("r", np.array((*PROMPT, *found.tokens[:at])), 3, 23 - at, {}, (), generation)
        guess = Noise().propose_one(context, None, Budget(max_depth=23 - at - 1)).tokens.tolist()
        assert list(found.tokens[at : at + len(guess)]) == guess
        if temperature == 0:
            best = int(np.argmax(target.law((*PROMPT, *found.tokens[: at + len(guess)]))))
            assert found.tokens[at + len(guess)] == best
        at, steps = at + len(guess) + 1, steps + 1
    assert found.metrics.steps == steps, "the target was run again after a kept mismatch"


def ban(seed: int, temperature: float, basis: str) -> None:
    """What is banned must not be written, though drafts are full of it."""
    target = scripted(hash_law(seed, SIZE), SIZE)
    banned = Generation(temperature=temperature, max_new_tokens=25, seed=seed, bad_word_ids=[[2], [4]])
    found = text(target, Noise(), bound(RandomArbiter(rate=1.0, basis=basis), target), banned)
    assert not {2, 4} & set(found.tokens)
    assert found.metrics.verifier["banned"] > 0 or not found.metrics.drafted


@given(seed=some.SEEDS, temperature=st.sampled_from((0.0, 1.0)), basis=st.sampled_from(("residual", "coupled")))
@settings(max_examples=40)
def test_what_the_request_bans_never_stands(seed: int, temperature: float, basis: str) -> None:
    ban(seed, temperature, basis)


@given(seed=some.SEEDS, allow=st.booleans())
@settings(max_examples=30)
def test_a_target_that_ends_is_overridden_only_where_that_is_allowed(seed: int, allow: bool) -> None:
    first = int(np.argmax(scripted(hash_law(seed, SIZE), SIZE).law(PROMPT)))
    target = scripted(hash_law(seed, SIZE), SIZE, eos_ids=(first,))

    class Other(SequenceDrafter):
        """Never an end."""

        def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
            return Draft.chain([(first + 1) % SIZE])

    found = text(target, Other(), bound(RandomArbiter(rate=1.0, allow_eos_override=allow), target), Generation())
    assert (found.tokens[0] == first) is not allow and (found.metrics.verifier["ends"] > 0) is not allow


@given(seed=some.SEEDS)
@settings(max_examples=20)
def test_a_block_that_the_arbiter_cannot_read_keeps_the_targets_text(seed: int) -> None:
    target, generation = scripted(hash_law(seed, SIZE), SIZE), Generation(max_new_tokens=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chance.Chance, "scores", lambda self, blocks: [None] * len(blocks))
        found = text(target, Noise(), bound(RandomArbiter(rate=1.0), target), generation)
    plain = serve(assemble(target), [Ask(PROMPT, generation, "r")])["r"].finished
    assert found.tokens == plain.tokens and found.metrics.verifier["unread"] > 0


@pytest.mark.parametrize("options", [{}, {"max_overrides_per_block": 2}, {"max_consecutive_overrides": 1}])
def test_limits_cap_a_block(options: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which places of each draft were kept against the target, by hand: no more in all, no more in a row."""
    kept: list[list[int]] = []
    walk = Walker.walk

    def noted(self: Walker) -> Any:
        found = yield from walk(self)
        kept.append(self.kept)
        return found

    monkeypatch.setattr(Walker, "walk", noted)
    target = scripted(hash_law(5, SIZE), SIZE)
    found = text(target, Noise(), bound(RandomArbiter(rate=1.0, **options), target), Generation(max_new_tokens=60))
    most = max(len(places) for places in kept)
    in_a_row = max(longest_run(places) for places in kept)
    assert most == options.get("max_overrides_per_block", most) and (options or most > 2)
    assert in_a_row == options.get("max_consecutive_overrides", in_a_row) and (options or in_a_row > 1)
    assert (found.metrics.verifier["capped"] > 0) is bool(options)


def longest_run(places: list[int]) -> int:
    longest = length = 0
    for i, place in enumerate(places):
        length = length + 1 if i and places[i - 1] == place - 1 else 1
        longest = max(longest, length)
    return longest


@given(seed=some.SEEDS, temperature=st.sampled_from((0.0, 0.8)), rescore=st.booleans())
@settings(max_examples=30)
def test_a_batch_decides_as_each_alone(seed: int, temperature: float, rescore: bool) -> None:
    target = scripted(hash_law(seed, SIZE), SIZE)
    verifier = bound(RandomArbiter(rate=0.5, rescore=rescore), target)
    asks = [
        Ask((1, i), Generation(temperature=temperature, max_new_tokens=9 + i, seed=seed + i), f"r{i}") for i in range(4)
    ]
    together = serve(assemble(target, {"draft": Noise()}, verifier=verifier), asks, max_batch=4)
    for ask in asks:
        alone = serve(assemble(target, {"draft": Noise()}, verifier=verifier), [ask])[ask.request_id].finished
        assert together[ask.request_id].finished.tokens == alone.tokens


def test_a_share_of_mismatches_is_kept_by_chance() -> None:
    target = scripted(hash_law(1, SIZE), SIZE)
    found = text(
        target, Noise(), bound(RandomArbiter(rate=0.3), target), Generation(max_new_tokens=3000, ignore_eos=True)
    )
    told = found.metrics.verifier
    assert told["decisions"] > 800 and abs(told["kept"] / told["decisions"] - 0.3) < 0.05
    assert told["asked"] <= told["blocks"] == found.metrics.steps


def test_what_is_likely_enough_is_kept() -> None:
    target = scripted(hash_law(2, SIZE), SIZE)
    counts = []
    for threshold in (0.0, 0.2, 0.9, 1.1):
        verifier = bound(ThresholdArbiter(threshold=threshold), target)
        found = text(target, Noise(), verifier, Generation(max_new_tokens=400, ignore_eos=True))
        counts.append(found.metrics.verifier["kept"] / max(1, found.metrics.verifier["decisions"]))
    assert counts[0] == 1 and counts[0] > counts[1] > counts[2] >= counts[3] == 0


class BrokenError(Exception):
    """Raised by an arbiter that fails for one request."""


def test_an_arbiter_that_fails_for_one_sequence_ends_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from draftmux.verifiers.cospec.random import Chance

    def scores(self: Any, blocks: Any) -> Any:
        if any(block.request.context.request_id == "r1" for block in blocks):
            raise BrokenError("no opinion")
        return [[1.0] * len(block.verified) for block in blocks]

    monkeypatch.setattr(Chance, "scores", scores)
    target = scripted(hash_law(1, SIZE), SIZE)
    asks = [Ask((1, i), Generation(max_new_tokens=9), f"r{i}") for i in range(3)]
    verifier = bound(RandomArbiter(rate=0.5), target)
    found = serve(assemble(target, {"draft": Noise()}, verifier=verifier), asks, max_batch=3)
    assert found["r1"].error is not None and "no opinion" in str(found["r1"].error)
    assert all(found[name].result is not None for name in ("r0", "r2"))
    assert not found["r0"].finished.metrics.faults


def shifted(self: Walker) -> Any:
    """Commits the target's token of the place after."""
    made = original(self)
    scores = None
    while True:
        try:
            scores = yield made.send(scores)
        except StopIteration as end:
            path = end.value.path
            return Acceptance(path, self.basis.shown(min(len(path) + 1, len(self.request.draft) - 1)))


original = Walker.walk
FAULTS: dict[str, Any] = {
    "the target's token is taken from the next place": (Walker, "walk", shifted, lambda: refuse_all(1, "rate", PLAIN)),
    "bans are not looked at": (module, "refusal", lambda *args: None, lambda: ban(1, 0.0, "coupled")),
}
PLAIN = Generation(max_new_tokens=20, ignore_eos=True)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, broken, test = FAULTS[name]
    test()
    monkeypatch.setattr(where, attribute, broken)
    with pytest.raises(AssertionError):
        test()
