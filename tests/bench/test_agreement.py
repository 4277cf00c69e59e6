from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from attrs import frozen

from draftmux.backends.scripted import ScriptedTarget
from draftmux.bench.agreement import Agreement, Margins, Policy, compare, first_difference, logits_dtype
from draftmux.bench.contenders import Output
from draftmux.bench.conversation import Prompt
from draftmux.bench.run import Plan, Trial, Unit, measure
from draftmux.bench.suites import Row, Suite
from draftmux.generation import Generation
from draftmux.noise import gumbel
from draftmux.testing.drafters import Oracle
from draftmux.testing.targets import scripted, table_law
from draftmux.types import Acceptance, Accepts
from draftmux.verifiers.exact_match import ExactMatch

Make = Callable[..., Any]
GREEDY = Generation()
FLOAT64 = Policy("float64", demands_text=True)


@frozen
class Twisted:
    """Accepts as exact match does and then writes another token, every time that somebody drafted."""

    lossless: bool
    accepts: ClassVar[Accepts] = Accepts()

    def bind(self, resources: Any) -> Twisted:
        return self

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Acceptance:
        honest = ExactMatch().accept(context, draft, scores, sampler)
        return Acceptance(honest.path, (honest.token + 1) % scores.logits.shape[-1]) if len(draft) else honest


def units_of(answers: Sequence[tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]]) -> list[Unit]:
    """One unit a pair: what plain and what another wrote, one answer a repeat."""
    units = []
    for i, (plain, other) in enumerate(answers):
        trials = {
            name: [Trial((Output(tuple(tokens), "", 1.0),), 1.0) for tokens in repeats]
            for name, repeats in (("plain", plain), ("other", other))
        }
        units.append(Unit((Prompt(str(i), "", (0,)),), trials))
    return units


@pytest.mark.parametrize(
    ("one", "two", "index"), [((1, 2), (1, 3), 1), ((1, 2), (1,), 1), ((), (1,), 0), ((), (), 0), ((5,), (6, 7), 0)]
)
def test_first_difference(one: tuple[int, ...], two: tuple[int, ...], index: int) -> None:
    assert first_difference(one, two) == index
    assert first_difference(two, one) == index


@pytest.mark.parametrize(
    ("dtype", "demands", "margin", "verdict"),
    [
        ("float64", True, 1e-9, "breach"),
        ("float64", True, None, "breach"),
        ("float32", True, 1e-4, "tie"),
        ("float32", True, 2e-4, "breach"),
        ("float32", True, None, "breach"),
        ("bfloat16", True, 3.0, "reported"),
        ("float16", True, None, "reported"),
        ("float64", False, 1.0, "reported"),
    ],
)
def test_policy(dtype: str, demands: bool, margin: float | None, verdict: str) -> None:
    assert Policy(dtype, demands).verdict(margin) == verdict


def test_identical_prompts_are_counted_over_all_repeats(dummy_target: ScriptedTarget) -> None:
    units = units_of(
        [
            ([(1, 2)], [(1, 2)]),
            ([(1, 2)], [(1, 3)]),
            ([(1, 2), (1, 2)], [(1, 2), (1, 2, 4)]),
            ([(1, 2, 3)], [(1, 2)]),
            ([()], [()]),
        ]
    )
    agreement = compare(units, "other", "plain", FLOAT64, Margins(dummy_target, GREEDY))
    assert (agreement.prompts, agreement.identical, agreement.complete) == (5, 2, False)
    found = [(d.prompt.name, d.index, d.margin, d.tokens) for d in agreement.differences]
    # Plain chose by 4 - 1 wherever it went on, and had ended after two tokens in the second case.
    assert found == [("1", 1, 3.0, (1, 3)), ("2", 2, None, (1, 2, 4)), ("3", 2, 3.0, (1, 2))]
    assert compare(units, "plain", "plain", FLOAT64, Margins(dummy_target, GREEDY)).complete
    assert Agreement(0, ()).complete


def test_margins_are_the_target_s_own_and_remembered() -> None:
    table = [[0.0, 2.5, 2.0], [1.0, 1.0, 0.0], [0.0, 0.5, 9.0]]
    target = scripted(table_law(table), 3)
    margins = Margins(target, GREEDY)
    assert margins.at((2, 0), ()) == pytest.approx(0.5)
    assert margins.at((2,), (0, 1)) == 0.0
    assert margins.at((1,), (0, 2)) == pytest.approx(8.5)
    assert target.passes == 3
    assert margins.at((2, 0), ()) == pytest.approx(0.5)
    assert target.passes == 3
    assert target.open_sequences == 0


def test_margins_follow_processors_and_noise() -> None:
    table = [[0.0, 2.5, 2.0]] * 3
    target = scripted(table_law(table), 3)
    assert Margins(target, Generation(bad_word_ids=[[1]])).at((0,), ()) == pytest.approx(2.0)
    assert Margins(target, Generation(bad_word_ids=[[1], [2]])).at((0,), ()) is None
    noise = gumbel(5, 1, 3)
    drawn = sorted((logit / 0.5 + float(n) for logit, n in zip(table[0], noise, strict=True)), reverse=True)
    sampled = Margins(target, Generation(temperature=0.5, seed=5)).at((0,), ())
    assert sampled == pytest.approx(drawn[0] - drawn[1], rel=1e-5)


def test_an_interrupt_ends_the_recomputing_of_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    target = scripted(table_law([[0.0, 1.0]] * 2), 2)
    margins = Margins(target, GREEDY)
    assert margins.at((0,), ()) == 1.0

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ScriptedTarget, "score", interrupt)
    assert margins.at((1,), ()) is None
    monkeypatch.undo()
    assert margins.stopped
    assert margins.at((1, 1), ()) is None
    assert margins.at((0,), ()) == 1.0
    assert target.open_sequences == 0


def test_dtype_of_targets_with_and_without_a_model(dummy_target: ScriptedTarget) -> None:
    assert logits_dtype(dummy_target) == "float64"
    assert dummy_target.open_sequences == 0


@pytest.mark.parametrize(("says_lossless", "verdict"), [(True, "breach"), (False, "reported")])
def test_a_verifier_that_changes_the_text_shows(
    make_pipeline: Make, make_line_up: Make, dummy_target: ScriptedTarget, says_lossless: bool, verdict: str
) -> None:
    """Planted: a verifier that writes a wrong token whenever there was a draft, honest about it or not."""
    drafter = Oracle([[3, *[1] * 40]], k=2)
    contenders = [
        make_pipeline("plain", dummy_target),
        make_pipeline("good", dummy_target, drafter),
        make_pipeline("bad", dummy_target, drafter, Twisted(says_lossless)),
    ]
    line_up = make_line_up(contenders, dummy_target)
    suite = Suite("s", (Row("in", "", ("w3",)), Row("out", "", ("w4",))))
    measured = measure(line_up, suite, Plan(warmup=0))
    policy = Policy("float64", demands_text=says_lossless)
    good, bad = (
        compare(measured.units, name, "plain", policy, Margins(dummy_target, GREEDY)) for name in ("good", "bad")
    )
    assert good.complete
    assert bad.identical == 1  # the drafter knows nothing of the prompt w4
    assert [(d.prompt.name, d.index, d.margin, d.verdict) for d in bad.differences] == [("in", 2, 3.0, verdict)]
    assert len(bad.breaches) == says_lossless


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_exact_numerics_leave_no_room_for_ties(dtype: str) -> None:
    assert Policy(dtype, demands_text=True, exact=True).verdict(0.0) == "breach"
    assert Policy(dtype, demands_text=False, exact=True).verdict(0.0) == "reported"
