"""Checks of the law of a verifier: whole texts, by enumeration of every course it can take, under settings that change
the target's law from node to node. Knows forms of drafts and toy laws, and no rule of acceptance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from draftmux.generation import Generation
from draftmux.testing.conformance.drafter_text import same_text
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import asks
from draftmux.testing.conformance.verifier_cases import Tempting, drafters, forms
from draftmux.testing.constraints import Automaton
from draftmux.testing.harness import assemble
from draftmux.testing.laws import check_law, distance
from draftmux.testing.sampled import SampledTree
from draftmux.testing.toys import TOYS, random_toy, trapping_toy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmux.testing.conformance.subject import Subject
    from draftmux.testing.sampled import SampledDrafter
    from draftmux.testing.toys import Toy

SAME = 1e-6  # total variation that only rounding makes
# Toys, and the forms of drafts that are left out there: their courses are too many for seconds.
LEFT_OUT = {
    "random": {"tree", "distinct tree"},
    "a third is 0": {"tree", "distinct tree"},
    "ends": {"tree", "distinct tree", "branches", "distinct branches", "tree that stops"},
}
TRAP, ENDS, HOLES = trapping_toy(40), TOYS["ends"], TOYS["a third is 0"]
# What changes the law from node to node, with a toy on which it does.
SETTINGS: dict[str, tuple[Toy, dict[str, Any]]] = {
    "temperature, top_k and a penalty": (
        TOYS["random"],
        {"temperature": 0.7, "top_k": 2, "repetition_penalty": 1.5},
    ),
    "banned words that leave a dead end": (TRAP, {"bad_word_ids": [[2, 0]]}),
    "a constraint": (ENDS, {"constraint": Automaton(7)}),
}
WIDE = evolve(random_toy(50, vocab_size=12), prompt=tuple(range(12)) * 4)
LIGHT = ("chain", "siblings", "distinct siblings", "coupled chain", "tree of point masses", "chain of point masses")
ROUNDS: dict[str, tuple[int, ...]] = {"chain": (1, 1), "siblings": (2,)}


@frozen(eq=False)
class Case:
    """A toy, the drafts that are drawn from its q, and settings; `said` names them."""

    said: str
    toy: Toy
    drafts: str | SampledDrafter
    generation: Generation = field(factory=lambda: Generation(temperature=1.0))
    rounds: int = 1


def exact_law(subject: Subject) -> None:
    """Lossless: sampled, whole texts have the target's own law, by enumeration of every course it can take, also with
    penalties, warpers, bans and a constraint, and over two rounds."""
    if not subject.plugin.lossless:
        raise NotApplicableError("it says that it is lossy")
    bound = subject.bind(subject.scenes[0].target)
    for case in cases(subject):
        try:
            check_law(bound, case.drafts, case.toy, case.generation, rounds=case.rounds)
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(f"{case.said}: {kind}{error}") from error


def lossy_differs(subject: Subject) -> None:
    """Lossy: on some toy its text or its law is not the target's; otherwise it should say that it is lossless."""
    if subject.plugin.lossless:
        raise NotApplicableError("it is lossless")
    scene = subject.scenes[0]
    bound = subject.bind(scene.target)
    try:
        for drafter in (Tempting(scene.law), *drafters(subject.plugin.accepts, scene, []).values()):
            same_text(
                scene, assemble(scene.target, {"it": drafter}, verifier=bound), asks(scene.target, sampled=False), 1
            )
    except AssertionError:
        return
    if any(distance(bound, case.drafts, case.toy) > SAME for case in _plain(subject)):
        return
    raise AssertionError("greedy and sampled, nothing differs from the target; declare lossless = True")


def cases(subject: Subject) -> Iterator[Case]:
    """What its law is enumerated on, few enough for seconds."""
    accepted = [form for form in LIGHT if form in forms(subject.plugin.accepts)]
    for name, (toy, options) in SETTINGS.items():
        generation = Generation(**{"temperature": 1.0, **options})
        for form in accepted:
            yield Case(f"with {name}, drafts '{form}'", toy, form, generation)
    for form, widths in ROUNDS.items():
        if form in accepted:
            yield Case(f"over two rounds, drafts '{form}'", HOLES, SampledTree(HOLES.q, widths), rounds=2)
    if "chain" in accepted:
        yield Case("after 48 tokens, of a vocabulary of 12", WIDE, SampledTree(WIDE.q, (1,)))
    yield from _plain(subject)


def _plain(subject: Subject) -> Iterator[Case]:
    accepted = forms(subject.plugin.accepts)
    for name, left_out in LEFT_OUT.items():
        for form in accepted:
            if form not in left_out:
                yield Case(f"toy '{name}', drafts '{form}'", TOYS[name], form)
