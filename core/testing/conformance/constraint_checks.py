"""Checks of a constraint: states that never change, masks that say what `advance` does, and texts that are those of
plain decoding. Walks a constraint over a small byte-level tokenizer; knows no grammar."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from draftmux.generation import Generation
from draftmux.protocols import Vocabulary, lacking
from draftmux.testing.conformance.report import DoubtError
from draftmux.testing.conformance.scenes import one_by_one, said
from draftmux.testing.drafters import RandomTree, TreeOracle
from draftmux.testing.harness import Trial
from draftmux.testing.reference import Ask
from draftmux.testing.routers import RandomRouter
from draftmux.testing.targets import hash_law, scripted
from draftmux.testing.texts import byte_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from draftmux.testing.conformance.subject import Subject

WALKS = 6
LENGTH = 12  # tokens of a walk
TRIED = 48  # tokens by which every state of a walk is advanced
PADDED = 7  # ids without a text, as real vocabularies have them
TEXTS = 3
NEW_TOKENS = 24


@frozen(eq=False)
class Place:
    """A state of a walk: what led to it, and what it allows."""

    tokens: tuple[int, ...]
    state: Any
    mask: NDArray[np.bool_]

    def __str__(self) -> str:
        """For messages."""
        return f"after {said(self.tokens)}" if self.tokens else "at the start"


def protocol(subject: Subject) -> None:
    """It has `begin`, whose state has `allowed` and `advance`."""
    missing = lacking(subject.plugin, subject.protocol)
    assert not missing, f"it lacks {', '.join(missing)}"
    state = begun(subject)
    missing = [name for name in ("allowed", "advance") if not callable(getattr(state, name, None))]
    assert not missing, f"`begin` returned a {type(state).__name__}, which lacks {', '.join(missing)}"


def masks(subject: Subject) -> None:
    """`allowed` gives a contiguous boolean array with an entry for every id, also for ids that have no text."""
    known = vocabulary(subject)
    for more in (0, PADDED):
        wider = evolve(known, size=known.size + more)
        for place in walk(subject, wider, 0):
            mask = place.state.allowed()
            assert isinstance(mask, np.ndarray), f"{place}: allowed() gave a {type(mask).__name__}, not a numpy array"
            fits = mask.shape == (wider.size,) and mask.dtype == np.bool_
            assert fits, (
                f"{place}: allowed() has shape {mask.shape} and dtype {mask.dtype}, not ({wider.size},) and bool"
            )
            assert mask.flags.c_contiguous, f"{place}: allowed() is not contiguous"


def moves_fit_masks(subject: Subject) -> None:
    """`advance` gives a state wherever `allowed` is True. Elsewhere None: a drafted token that gets a state there is
    scored for nothing. (Tokens that end the text need no state.)"""
    refused, taken = 0, []
    for place in places(subject):
        for token in _tried(subject, place):
            moved, allowed = place.state.advance(token) is not None, bool(place.mask[token])
            told = f"{place}: allowed() says {allowed} of token {token}, and advance gave "
            assert moved or not allowed, f"{told}None"
            refused += not moved
            taken += [f"{told}a state"] if moved and not allowed else []
    # A few may be: where a text has one usual spelling, a mask can be narrower than its grammar.
    if len(taken) > refused:
        raise DoubtError(f"{taken[0]}; so it did {len(taken)} times of {len(taken) + refused}")


def never_stuck(subject: Subject) -> None:
    """Every state allows a token, or the end: otherwise the request can only fail."""
    for place in places(subject):
        assert place.mask.any(), f"{place} it allows nothing, and the text may not end there either"


def states_never_change(subject: Subject) -> None:
    """Nothing that is done with the states after it changes a state: branches of a draft share it."""
    for place in places(subject):
        moved = {token: place.state.advance(token) for token in _tried(subject, place)}
        branches = {token: state for token, state in moved.items() if state is not None}
        first = {token: np.array(state.allowed()) for token, state in branches.items()}
        for token, state in branches.items():
            state.advance(int(first[token].argmax()))
        told = f"{place}: what allowed() says is another once the state was advanced"
        assert np.array_equal(place.state.allowed(), place.mask), told
        for token, state in branches.items():
            told = f"{place}, token {token}: what allowed() says is another once its siblings were advanced"
            assert np.array_equal(state.allowed(), first[token]), told


def begins_anew(subject: Subject) -> None:
    """`begin` depends on the vocabulary alone: not on requests before it or beside it, nor on other vocabularies."""
    known = vocabulary(subject)
    first = [(place.tokens, place.mask) for place in walk(subject, known, 0)]
    running = begun(subject)
    list(walk(subject, evolve(known, size=known.size + PADDED), 1))
    for name, plugin in (("the same", subject.plugin), ("another", subject.fresh())):
        for tokens, mask in first:
            found = _replayed(plugin.begin(known), tokens)
            assert found is not None, f"{name} constraint, begun again, does not allow {said(tokens)} any more"
            told = f"{name} constraint, begun again, says otherwise after {said(tokens)}"
            assert np.array_equal(found.allowed(), mask), told
    assert np.array_equal(running.allowed(), first[0][1]), "another request's `begin` changed a running one"


def constrained_identity(subject: Subject) -> None:
    """Greedy and sampled, with drafts that are right, nearly right and random, texts are those of constrained plain
    decoding, in a batch of requests that share the constraint."""
    target = _target(subject)
    wanted = Generation(max_new_tokens=NEW_TOKENS, constraint=subject.plugin)
    asks = [Ask((1, 2), evolve(wanted, seed=seed, temperature=min(seed, 1)), f"text-{seed}") for seed in range(TEXTS)]
    trial = Trial.prepare(target, asks, getattr(target, "law", None) or one_by_one(target))

    def drafters(truths: Any) -> dict[str, Any]:
        size = target.vocab_size
        return {"right": TreeOracle(truths, size, k=4), "random": RandomTree(size, nodes=6, seed=2)}

    trial.check(drafters, RandomRouter(1), max_batch=TEXTS)


def begun(subject: Subject) -> Any:
    """The state before the first token."""
    return subject.plugin.begin(vocabulary(subject))


def vocabulary(subject: Subject) -> Vocabulary:
    """That of the kit's byte-level tokenizer, or of the target that was given."""
    target = _target(subject)
    return Vocabulary(target.vocab_size, frozenset(target.eos_ids), target.tokenizer)


def _target(subject: Subject) -> Any:
    def make() -> Any:
        if subject.setting.target is not None:
            return subject.setting.target(())
        tokenizer = byte_tokenizer()
        size = len(tokenizer)
        return scripted(hash_law(1, size), size, eos_ids=(tokenizer.eos_token_id,), tokenizer=tokenizer)

    return subject.once("target", make)


def places(subject: Subject) -> list[Place]:
    """States of some walks; made once."""
    known = vocabulary(subject)

    def make() -> list[Place]:
        return list(itertools.chain.from_iterable(walk(subject, known, seed) for seed in range(WALKS)))

    found: list[Place] = subject.once("places", make)
    return found


def walk(subject: Subject, known: Vocabulary, seed: int) -> Iterator[Place]:
    """Random allowed tokens from the start, until only an end is left."""
    rng, state = np.random.default_rng(seed), subject.plugin.begin(known)
    tokens: tuple[int, ...] = ()
    for _ in range(LENGTH):
        place = Place(tokens, state, np.array(state.allowed()))
        yield place
        inner = [token for token in np.flatnonzero(place.mask).tolist() if token not in known.end_ids]
        if not inner:
            return
        token = inner[int(rng.integers(len(inner)))]
        state, tokens = state.advance(token), (*tokens, token)
        assert state is not None, f"{place}: allowed() says True of token {token}, and advance gave None"


def _tried(subject: Subject, place: Place) -> list[int]:
    """Tokens that do not end the text, of both kinds as far as there are both."""
    rng, ends = np.random.default_rng(len(place.tokens)), vocabulary(subject).end_ids
    kinds = [rng.permutation(np.flatnonzero(place.mask == kind))[: TRIED // 2].tolist() for kind in (True, False)]
    return sorted({*kinds[0], *kinds[1]} - ends)


def _replayed(state: Any, tokens: Sequence[int]) -> Any:
    for token in tokens:
        state = state and state.advance(token)
    return state
