"""Checks of a verifier: its texts, and single decisions on drafts of every form that it says it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.engine.guard import checked_acceptance
from draftmux.protocols import lacking
from draftmux.testing.conformance.drafter_text import same_text
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import asks
from draftmux.testing.conformance.spies import generators_moved, unpickled
from draftmux.testing.conformance.verifier_cases import SIZE, decisions, drafters
from draftmux.testing.harness import assemble
from draftmux.testing.routers import RandomRouter
from draftmux.types import Accepts

if TYPE_CHECKING:
    from draftmux.testing.conformance.subject import Subject


def declarations(subject: Subject) -> None:
    """`lossless` and `pathwise` are booleans, the second only with the first, and `accepts` is an Accepts."""
    plugin = subject.plugin
    for name in ("lossless", "pathwise"):
        assert isinstance(getattr(plugin, name), bool), f"{name} is {getattr(plugin, name)!r}, not a bool"
    assert plugin.lossless or not plugin.pathwise, "pathwise without lossless: the same text has the same law"
    assert isinstance(plugin.accepts, Accepts), f"accepts is a {type(plugin.accepts).__name__}, not Accepts"


def protocol(subject: Subject) -> None:
    """It has every member of its protocol, before it is bound and after."""
    for found in (subject.plugin, subject.bind(subject.scenes[0].target)):
        missing = lacking(found, subject.protocol)
        assert not missing, f"a {type(found).__name__} lacks {', '.join(missing)}"


def greedy_identity(subject: Subject) -> None:
    """Lossless: greedy, the text is plain decoding's own."""
    _lossless(subject)
    _identity(subject, sampled=False)


def seeded_identity(subject: Subject) -> None:
    """Pathwise: sampled, the text is plain decoding's own for the same seed."""
    if not subject.plugin.pathwise:
        raise NotApplicableError("it is not pathwise: another text of the same law is allowed")
    _identity(subject, sampled=True)


def legal_paths(subject: Subject) -> None:
    """Every path runs down the draft from a child of the root, and the token after it is the target's."""
    for where, _, draft, acceptance in decisions(subject):
        try:
            checked_acceptance(acceptance, draft, SIZE)
        except Exception as error:
            raise AssertionError(f"{where}: {error}") from error


def keyed_noise(subject: Subject) -> None:
    """The same step has the same outcome again, in another order of steps, and wherever other generators stand."""
    first = list(decisions(subject))
    with generators_moved(1):
        again = list(decisions(subject, reverse=True))[::-1]
    for (where, _, _, one), (_, _, _, two) in zip(first, again, strict=True):
        same = (tuple(one.path), one.token) == (tuple(two.path), two.token)
        assert same, f"{where}: first path {one.path} and token {one.token}, then {two.path} and {two.token}"


def one_number_a_decision(subject: Subject) -> None:
    """In one step no key of `bernoulli` or `draw` is asked twice: the second answer would not be independent."""
    for where, spy, _, _ in decisions(subject):
        assert not spy.repeated, f"{where}: it asks {spy.repeated[0]} twice"


def within_the_draft(subject: Subject) -> None:
    """It asks about the root and about nodes that there are; a negative index would wrap round in silence."""
    for where, spy, draft, _ in decisions(subject):
        assert not spy.beyond, f"{where}: it asks {spy.beyond[0]} of a draft of {len(draft)} nodes"


def reads_only(subject: Subject) -> None:
    """It writes into nothing that it is shown."""
    for where, spy, _, _ in decisions(subject):
        assert spy.untouched, f"{where}: it wrote into the logits, the draft or the tokens"


def no_pickle(subject: Subject) -> None:
    """It unpickles nothing: data that is unpickled can run any code."""
    names: list[str] = []
    with unpickled(names):
        list(decisions(subject))
    assert not names, f"it unpickled {names[0]}; keep data as JSON or safetensors"


def _lossless(subject: Subject) -> None:
    if not subject.plugin.lossless:
        raise NotApplicableError("it says that it is lossy")


def _identity(subject: Subject, *, sampled: bool) -> None:
    for scene in subject.scenes:
        asked = asks(scene.target, sampled=sampled)
        every = drafters(subject.plugin.accepts, scene, [scene.expect(ask).truth for ask in asked])
        bound = subject.bind(scene.target)
        for name, drafter in every.items() if scene is subject.scenes[0] else ():
            same_text(scene, assemble(scene.target, {name: drafter}, verifier=bound), asked, 2)
        same_text(scene, assemble(scene.target, every, RandomRouter(1), verifier=bound), asked, 2)
