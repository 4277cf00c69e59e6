"""Checks of a router: its choices are legal and its own, and no choice changes the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmux.engine.guard import checked_choice
from draftmux.generation import Generation
from draftmux.testing.conformance.drafter_text import hostile_asks, same_text
from draftmux.testing.conformance.players import copied, of_choice, transcripts
from draftmux.testing.conformance.report import DoubtError
from draftmux.testing.conformance.scenes import asks, described, said
from draftmux.testing.drafters import Empty, RandomTree, TreeOracle
from draftmux.testing.harness import assemble
from draftmux.testing.reference import Ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmux.engine.step import Parts
    from draftmux.testing.conformance.scenes import Scene
    from draftmux.testing.conformance.subject import Subject

LONG = 90  # tokens; more steps than the history keeps


def legal_choices(subject: Subject) -> None:
    """Every choice is a Choice with a legal budget of drafters that there are: those it uses, or none, one or three."""
    for where, names, choice in choices(subject):
        try:
            checked_choice(choice, dict.fromkeys(names))
        except Exception as error:
            raise AssertionError(f"{where}, with the drafters {list(names)}: {error}") from error


def choices(subject: Subject) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """What it chooses in recorded decodings, and where."""
    uses = subject.plugin.uses()
    for names in ((), ("one",), ("one", "two", "three")) if uses is None else (uses,):
        for scene, played in transcripts(subject):
            bound, drafters = subject.bind(scene.target), subject.named(names, scene.target)
            for transcript in played:
                state = bound.begin(copied(transcript.contexts[0]))
                for context, step in zip(transcript.contexts, transcript.steps, strict=True):
                    where = f"{described(transcript.ask)}, after {said(context.tokens)}"
                    yield where, names, bound.choose(state, copied(context), drafters)
                    bound.observe(state, step)


def greedy_identity(subject: Subject) -> None:
    """Greedy, the text is plain decoding's own, whatever it chooses, also over more steps than the history keeps."""
    for scene in subject.scenes:
        room = (scene.target.max_length or LONG * 2) - 24
        long = Ask((1, 2, 3), Generation(max_new_tokens=min(LONG, room), ignore_eos=True), "long")
        _same(subject, scene, [*asks(scene.target, sampled=False), long])


def seeded_identity(subject: Subject) -> None:
    """Sampled, the text is plain decoding's own for the same seed."""
    for scene in subject.scenes:
        _same(subject, scene, asks(scene.target, sampled=True))


def hostile_prompts(subject: Subject) -> None:
    """It copes with prompts of one token, of one token again and again, of end tokens and of 2,000 tokens."""
    for scene in subject.scenes[:2]:
        _same(subject, scene, hostile_asks(scene))


def keeps_its_hands_off(subject: Subject) -> None:
    """It judges drafters without asking them: a router that calls `propose` drafts twice."""
    for scene, played in transcripts(subject)[:1]:
        bound = subject.bind(scene.target)
        calls: list[str] = []
        drafters = {name: _Untouchable(name, calls) for name in subject.drafters(scene.target)}
        context = played[0].contexts[0]
        state = bound.begin(copied(context))
        bound.choose(state, copied(context), drafters)
        assert not calls, f"it called `{calls[0]}` of a drafter"


def engages(subject: Subject) -> None:
    """It chooses a drafter at least once; a router that never does passes every other check."""
    if all(
        of_choice(checked_choice(choice, dict.fromkeys(names))).values[1] is None
        for _, names, choice in choices(subject)
    ):
        raise DoubtError("it never chose a drafter; give options that make it")


class _Untouchable:
    """A drafter that notes when somebody wants it to work."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self._inner = RandomTree(4)
        self._name = name
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if name in ("propose", "begin", "observe", "bind"):
            self._calls.append(f"{self._name}.{name}")
        return getattr(self._inner, name)


def _same(subject: Subject, scene: Scene, asked: list[Ask]) -> None:
    same_text(scene, _parts(subject, scene, asked), asked, 3)


def _parts(subject: Subject, scene: Scene, asked: list[Ask]) -> Parts:
    """The router over drafters that are often right, hardly ever right, and never there."""
    size = scene.target.vocab_size
    truths = [scene.expect(ask).truth for ask in asked if ask.request_id != "long"]  # which takes many steps
    kinds = [TreeOracle(truths, size, k=4), RandomTree(size, nodes=6, seed=5), Empty()]
    names = list(subject.drafters(scene.target))
    drafters = {name: subject.setting.drafters.get(name) or kinds[i % 3] for i, name in enumerate(names)}
    return assemble(scene.target, drafters, subject.bind(scene.target))
