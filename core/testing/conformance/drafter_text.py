"""Checks of a drafter in the engine: under exact match, whatever it drafts, the text is plain decoding's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.generation import Generation
from draftmux.testing.conformance.players import NOTHING, Player, others, play, transcripts
from draftmux.testing.conformance.report import DoubtError
from draftmux.testing.conformance.scenes import END, Scene, asks, described
from draftmux.testing.drafters import Empty
from draftmux.testing.harness import assemble, check_outcome, serve
from draftmux.testing.reference import Ask
from draftmux.testing.routers import RandomRouter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.engine.step import Parts
    from draftmux.testing.conformance.subject import Subject
    from draftmux.testing.reference import Expected

LONG = 2000


def greedy_identity(subject: Subject) -> None:
    """Greedy, the text is plain decoding's own, alone and among other drafters, in a batch, with penalties."""
    _identity(subject, sampled=False)


def seeded_identity(subject: Subject) -> None:
    """Sampled, the text is plain decoding's own for the same seed, with penalties and warpers."""
    _identity(subject, sampled=True)


def hostile_prompts(subject: Subject) -> None:
    """It copes with a prompt of one token, of one token again and again, of end tokens, of 2,000 tokens, and with
    requests for one or two tokens."""
    for scene in subject.scenes[:2]:
        asked = hostile_asks(scene)
        same_text(scene, assemble(scene.target, {"it": subject.bind(scene.target)}), asked, 1)


def engages(subject: Subject) -> None:
    """It drafts at all; a drafter that never does passes every other check."""
    for scene, played in transcripts(subject):
        player = Player.new(subject, scene)
        if any(answer is not NOTHING for transcript in played for answer in play(player, transcript)):
            return
    where = ", ".join(scene.name for scene in subject.scenes)
    raise DoubtError(f"it never drafted on {where}, so the checks saw none of its drafts; give options that make it")


def _identity(subject: Subject, *, sampled: bool) -> None:
    for scene in subject.scenes:
        asked = asks(scene.target, sampled=sampled)
        truths = [scene.expect(ask).truth for ask in asked]
        bound = subject.bind(scene.target)
        same_text(scene, assemble(scene.target, {"it": bound}), asked, 1)
        every = {"it": bound, **others(scene, truths), "none": Empty()}
        same_text(scene, assemble(scene.target, every, RandomRouter(1)), asked, 3)


def same_text(scene: Scene, parts: Parts, asked: Sequence[Ask], max_batch: int) -> None:
    """Every request ends as plain decoding ends it, and no plugin is at fault."""
    expected = [scene.expect(ask) for ask in asked]
    outcomes = serve(parts, asked, max_batch)
    for ask, wanted in zip(asked, expected, strict=True):
        _same(scene, ask, wanted, outcomes[ask.request_id])


def _same(scene: Scene, ask: Ask, expected: Expected, outcome: Any) -> None:
    where = f"on {scene.name}, {described(ask)}"
    assert outcome.error is None or expected.failed, f"{where}: {outcome.error}"
    try:
        check_outcome(outcome, expected)
    except AssertionError as error:
        raise AssertionError(f"{where}: {error}") from error


def hostile_asks(scene: Scene) -> list[Ask]:
    """Requests at the borders of what is allowed."""
    target, rng = scene.target, np.random.default_rng(4)
    end = min(target.eos_ids, default=END % target.vocab_size)
    long = min(LONG, (target.max_length or LONG * 2) - 24)
    text = rng.integers(0, target.vocab_size, 40).tolist()
    prompts = {
        "one token": (1 % target.vocab_size,),
        "one token again and again": (2 % target.vocab_size,) * 40,
        "end tokens": (*text[:5], end, *text[:5], end, *text[:3]),
        "end token last": (*text[:4], end),
        "long": tuple((text * (long // len(text) + 1))[:long]),
    }
    found = [Ask(prompt, Generation(max_new_tokens=12), name) for name, prompt in prompts.items()]
    few = [Ask(tuple(text[:9] * 2), Generation(max_new_tokens=count), f"{count} new tokens") for count in (1, 2)]
    return [*found, *few]
