"""Checks that drafters and routers share: what they declare, what they keep, what they touch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from draftmux.arrays import frozen_view
from draftmux.protocols import lacking
from draftmux.testing.conformance.players import Player, compare, play, play_together, transcripts
from draftmux.testing.conformance.spies import Spied, generators_moved, undeclared, unpickled
from draftmux.types import Needs

if TYPE_CHECKING:
    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Context, Step

RUBBISH = -7


def protocol(subject: Subject) -> None:
    """It has every member of its protocol, before it is bound and after."""
    missing = lacking(subject.plugin, subject.protocol)
    assert not missing, f"it lacks {', '.join(missing)}"
    bound = subject.bind(subject.scenes[0].target)
    missing = lacking(bound, subject.protocol)
    assert not missing, f"`bind` returned a {type(bound).__name__}, which lacks {', '.join(missing)}"
    if subject.kind in ("drafter", "router"):
        emits = [getattr(found, "emits", None) for found in (subject.plugin, bound)]
        assert emits[0] == emits[1], f"it declares {emits[0]} and once bound {emits[1]}; pipelines believe the first"
        assert isinstance(subject.plugin.needs, Needs), f"needs is a {type(subject.plugin.needs).__name__}, not Needs"
        uses = subject.plugin.uses()
        named = isinstance(uses, tuple) and all(isinstance(name, str) for name in uses)
        assert named or (uses is None and subject.kind == "router"), f"uses() gave {uses!r}, not a tuple of names"


def declared_needs(subject: Subject) -> None:
    """It works with the taps, models and drafters that it declares, and looks for no others."""
    missed: list[str] = []
    scene, played = transcripts(subject)[0]

    def shown(context: Context) -> Context:
        return evolve(context, taps=Spied(context.taps, "the tap", missed))

    def told(step: Step) -> Step:
        return evolve(step, taps=Spied(step.taps, "the tap", missed))

    try:
        bound = subject.bind(scene.target, lambda what, found: Spied(found, f"the {what.removesuffix('s')}", missed))
        play(Player(subject, bound, scene), played[0], shown=shown, told=told)
    except Exception as error:
        if not missed:
            raise
        raise AssertionError(f"it fails without {missed[0]}: {error}; {undeclared(subject)}") from error
    assert not missed, f"it looks for {missed[0]}; {undeclared(subject)}"


def own_state(subject: Subject) -> None:
    """What it says of a sequence is the same alone, in a batch with others, and after others."""
    for scene, played in transcripts(subject):
        alone = [play(Player.new(subject, scene), transcript) for transcript in played]
        player = Player.new(subject, scene)
        together = play_together(player, played)
        for transcript, one, two in zip(played, alone, together, strict=True):
            compare(transcript, one, two, ("alone", "in a batch"))
        for transcript, one in zip(played, alone, strict=True):
            compare(transcript, one, play(player, transcript), ("alone", "after other requests"))


def repeatable(subject: Subject) -> None:
    """The same request gives the same answers again, whatever else draws random numbers in the process."""
    for scene, played in transcripts(subject):
        for number, transcript in enumerate(played):
            first = play(Player.new(subject, scene), transcript)
            with generators_moved(number):
                again = play(Player.new(subject, scene), transcript)
            compare(transcript, first, again, ("first", "and then"))


def reads_only(subject: Subject) -> None:
    """It writes into no tokens and no tapped states, and keeps no view of the tokens: they are its own for one call."""
    for scene, played in transcripts(subject):
        for transcript in played[:2]:
            expected = play(Player.new(subject, scene), transcript)
            lent: list[tuple[Context, Context]] = []
            found = play(Player.new(subject, scene), transcript, shown=partial(_lend, lent))
            _take_back(lent)
            compare(transcript, expected, found, ("", "when the tokens of earlier calls are overwritten,"))


def _lend(lent: list[tuple[Context, Context]], context: Context) -> Context:
    """A copy of the context; what was lent before is taken back."""
    _take_back(lent)
    taps = {tap: states.clone() for tap, states in context.taps.items()}
    copy = evolve(context, tokens=context.tokens.copy(), taps=taps)
    lent.append((context, copy))
    return evolve(copy, tokens=frozen_view(copy.tokens))


def _take_back(lent: list[tuple[Context, Context]]) -> None:
    """The last context that was lent is as it was; from now on its tokens are rubbish."""
    for context, copy in lent:
        assert (copy.tokens == context.tokens).all(), f"it wrote into the tokens of request '{context.request_id}'"
        for tap, states in context.taps.items():
            assert states.equal(copy.taps[tap]), f"it wrote into the tapped states {tap} of '{context.request_id}'"
        copy.tokens[:] = RUBBISH
    lent.clear()


def no_pickle(subject: Subject) -> None:
    """It unpickles nothing: data that is unpickled can run any code."""
    scene, played = transcripts(subject)[0]
    names: list[str] = []
    with unpickled(names):
        play(Player.new(subject, scene), played[0])
    assert not names, f"it unpickled {names[0]}; keep weights as safetensors and data as JSON"
