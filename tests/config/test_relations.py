"""Whether the parts of a file fit together."""

from __future__ import annotations

from itertools import pairwise

import pytest

from draftmux.config.load import parse_pipeline
from draftmux.errors import PipelineError

pytestmark = pytest.mark.usefixtures("fakes")

MODELS = "models: {target: {source: m}, small: {source: s}}\n"


def faults(text: str) -> list[str]:
    """Faults of a file whose first line names the models; empty if there is none."""
    try:
        parse_pipeline(MODELS + text, "p", ())
    except PipelineError as error:
        return list(error.faults)
    return []


def test_a_router_names_drafters_that_exist() -> None:
    drafters = "drafters:\n  copy: {use: guess}\n  pld: {use: guess}\n"
    router = "router:\n  use: switch\n  first: {}\n  second: {}\n"
    assert faults(drafters + router.format("copy", "pld")) == []
    assert faults(drafters + router.format("cpoy", "eagle")) == [
        "p:7: router names drafter 'cpoy', which is not in drafters; did you mean 'copy'?",
        "p:8: router names drafter 'eagle', which is not in drafters; there is copy, pld",
    ]
    assert faults("router: {use: fixed, drafter: copy}") == [
        "p:2: router names drafter 'copy', which is not in drafters; there is none"
    ]


def test_a_reference_to_a_drafter_with_faults_is_no_second_fault() -> None:
    text = "drafters:\n  copy: {use: gess}\n  pld: {use: guess, size: 0}\n"
    text += "router: {use: switch, first: copy, second: pld}\n"
    assert [fault.partition(" ")[0] for fault in faults(text)] == ["p:3:", "p:4:"]
    assert len(faults("drafters: [copy]\nrouter: {use: fixed, drafter: copy}\n")) == 1


def test_drafters_name_drafters_and_models_that_exist() -> None:
    text = "drafters:\n  a: {use: group, of: [b,\n   c]}\n  b: {use: neural, model: smal}\nrouter: {use: any}\n"
    assert faults(text) == [
        "p:4: drafters.a names drafter 'c', which is not in drafters; there is a, b",
        "p:5: drafters.b needs model 'smal', which is not in models; did you mean 'small'?",
    ]


@pytest.mark.parametrize(
    ("groups", "circles"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b, c", "b": "c", "c": ""}, []),
        ({"a": "a"}, ["p:3: drafters are made of each other in a circle: a -> a; break it"]),
        ({"a": "b", "b": "c", "c": "b"}, ["p:4: drafters are made of each other in a circle: b -> c -> b; break it"]),
        (
            {"a": "b", "b": "a", "c": "d", "d": "c"},
            [
                "p:3: drafters are made of each other in a circle: a -> b -> a; break it",
                "p:5: drafters are made of each other in a circle: c -> d -> c; break it",
            ],
        ),
    ],
)
def test_circles(groups: dict[str, str], circles: list[str]) -> None:
    lines = [f"  {name}: {{use: group, of: [{of}]}}\n" for name, of in groups.items()]
    found = faults("drafters:\n" + "".join(lines) + "router: {use: any}\n")
    # where a circle begins is free
    assert [_turned(fault) for fault in found] == [_turned(fault) for fault in circles]


def _turned(fault: str) -> tuple[str, frozenset[str]]:
    place, _, circle = fault.removesuffix("; break it").partition(": drafters are made of each other in a circle: ")
    names = circle.split(" -> ")
    assert names[0] == names[-1]
    return place, frozenset(pairwise(names))


def test_a_lossy_verifier_must_be_allowed() -> None:
    assert faults("verifier: {use: lossy}\n") == [
        "p:2: verifier lossy is lossy: its text may differ from the target's; write `lossless: false` at the top level "
        "to allow that, or use a lossless verifier such as exact-match"
    ]
    assert len(faults("verifier: {use: lossy}\nlossless: true\n")) == 1
    assert faults("verifier: {use: lossy}\nlossless: false\n") == []
    assert faults("verifier: {use: exact-match}\nlossless: false\n") == []


NO_Q = (
    "p:{}: verifier strict and drafters.{} ({}) do not fit: the verifier needs the law q that drafted tokens were "
    "sampled from, and this drafter gives none; use a drafter that samples, or verifier exact-match"
)
TREES = (
    "p:{}: verifier strict and drafters.{} ({}) do not fit: the verifier takes only chains, and this drafter gives "
    "trees; use a drafter of chains, or a verifier that takes trees such as exact-match"
)


def test_drafts_must_suit_the_verifier() -> None:
    strict = "verifier: {use: strict}\n"
    assert faults("drafters: {d: {use: chain, q: true}}\n" + strict) == []
    assert faults("drafters: {d: {use: chain}}\n" + strict) == [NO_Q.format(3, "d", "chain")]
    assert faults("drafters: {d: {use: guess}}\n" + strict) == [
        NO_Q.format(3, "d", "guess"),
        TREES.format(3, "d", "guess"),
    ]


def test_only_reachable_drafters_must() -> None:
    drafters = "drafters:\n  good: {use: chain, q: true}\n  bad: {use: chain}\n  all: {use: group, of: [good, bad]}\n"
    strict = "verifier: {use: strict}\n"
    assert faults(drafters + strict + "router: {use: fixed, drafter: good}\n") == []
    assert faults(drafters + strict + "router: {use: fixed, drafter: bad}\n") == [NO_Q.format(6, "bad", "chain")]
    # what a group is made of counts through the group alone
    assert faults(drafters + strict + "router: {use: fixed, drafter: all}\n") == [
        NO_Q.format(6, "all", "group"),
        TREES.format(6, "all", "group"),
    ]
    # a router that names none may choose any
    assert faults(drafters + strict + "router: {use: any}\n") == [
        NO_Q.format(6, "bad", "chain"),
        NO_Q.format(6, "all", "group"),
        TREES.format(6, "all", "group"),
    ]


def test_plugins_that_fail_to_answer() -> None:
    text = "drafters:\n  a: {use: rude}\n  b: {use: rude, how: rubbish}\nrouter: {use: any}\n"
    assert faults(text) == [
        "p:3: drafters.a: `uses` of rude failed: KeyError: gone",
        "p:4: drafters.b: `uses` of rude must give drafter names, not (5,)",
    ]


@pytest.mark.parametrize(("how", "said"), [("exit", "SystemExit: 3"), ("mute", "MuteError: (no message)")])
@pytest.mark.parametrize("where", ["needs", "emits", "uses"])
def test_plugins_that_leave_or_cannot_speak_when_asked(where: str, how: str, said: str) -> None:
    text = f"drafters:\n  a: {{use: hostile, where: {where}, how: {how}}}\nverifier: {{use: exact-match}}\n"
    assert faults(text) == [f"p:3: drafters.a: `{where}` of hostile failed: {said}"]


@pytest.mark.parametrize("where", ["needs", "emits", "uses"])
def test_answers_that_cannot_be_printed(where: str) -> None:
    text = f"drafters:\n  a: {{use: hostile, where: {where}, how: unprintable}}\n"
    assert faults(text) == [f"p:3: drafters.a: `{where}` of hostile failed: MuteError: (no message)"]


@pytest.mark.parametrize("allowed", ["", "lossless: false\n"])
def test_a_verifier_must_say_whether_it_is_lossless(allowed: str) -> None:
    assert faults(f"verifier: {{use: secret}}\n{allowed}") == [
        "p:2: verifier: `lossless` of secret failed: SystemExit: 4"
    ]


def test_models_are_named_by_texts() -> None:
    assert faults("drafters: {a: {use: unnamed}}\n") == [
        "p:2: drafters.a: `needs` of unnamed must give model names, not ([],)"
    ]


@pytest.mark.parametrize(("how", "said"), [("exit", "SystemExit: 3"), ("mute", "MuteError: (no message)")])
@pytest.mark.parametrize(("where", "more"), [("init", ""), ("rule", ", checked: 1")])
def test_plugins_that_leave_or_cannot_speak_when_made(where: str, more: str, how: str, said: str) -> None:
    assert faults(f"drafters: {{a: {{use: hostile, where: {where}, how: {how}{more}}}}}\n") == [
        f"p:2: drafters.a: {said}"
    ]


def test_a_parser_or_a_default_that_leaves() -> None:
    assert faults("drafters: {a: {use: parsing, value: bye, fresh: 1}}\n") == ["p:2: drafters.a.value: SystemExit: bye"]
    assert faults("drafters: {a: {use: parsing}}\n") == ["p:2: drafters.a: SystemExit: 5"]


@pytest.mark.parametrize("where", ["rule", "init", "needs", "emits", "uses"])
def test_an_interrupt_is_the_users(where: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        faults(f"drafters: {{a: {{use: hostile, where: {where}, how: interrupt, checked: 1}}}}\n")
