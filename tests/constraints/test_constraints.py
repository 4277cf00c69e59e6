from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import draftmux
from draftmux import constraining, sampling
from draftmux.constraining import Constrained
from draftmux.constraints.grammar import JsonSchema, Lark, Regex
from draftmux.engine import step
from draftmux.errors import PipelineError, PluginError, RequestError
from draftmux.generation import Generation
from draftmux.protocols import Vocabulary
from draftmux.testing.constraints import Automaton, AutomatonState
from draftmux.testing.drafters import RandomTree, TreeOracle
from draftmux.testing.harness import Trial, assemble, serve
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.reference import Ask
from draftmux.testing.strategies import SEEDS, draft_trees, drafter_sets, generations, routers
from draftmux.testing.targets import hash_law, scripted
from draftmux.testing.texts import byte_tokenizer
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

FAULTS = Faults()
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@settings(max_examples=60, deadline=None)
@given(st.data(), SEEDS, SEEDS)
def test_constrained_speculation_is_constrained_plain_decoding(data: Any, seed: int, law: int) -> None:
    target = scripted(hash_law(law, 7), 7, eos_ids=(0,))
    wanted = generations(7, 14, (0,), constraint=Automaton(seed), ignore_eos=False)
    asks = [Ask((1, 2), data.draw(wanted), f"request-{number}") for number in range(2)]
    trial = Trial.prepare(target, asks)
    trial.check(data.draw(drafter_sets(7)), data.draw(routers()), max_batch=2)


@settings(max_examples=60, deadline=None)
@given(draft_trees(7), SEEDS)
def test_legal_drafts_keep_exactly_the_nodes_that_the_automaton_allows(draft: Any, seed: int) -> None:
    start = Automaton(seed).begin(Vocabulary(7, frozenset({0})))

    def accepted(node: int) -> bool:
        state: Any = start
        for token in draft.tokens[draft.path_to(node)].tolist():
            state = state and state.advance(token)
        return state is not None

    def paths(tree: Any) -> set[tuple[int, ...]]:
        return {tuple(tree.tokens[tree.path_to(node)].tolist()) for node in range(len(tree))}

    legal = Constrained(start, draft).legal()
    allowed = {tuple(draft.tokens[draft.path_to(node)].tolist()) for node in range(len(draft)) if accepted(node)}
    assert paths(legal) == allowed


def text_ids(text: str) -> tuple[int, ...]:
    return tuple(byte_tokenizer()(text, add_special_tokens=False)["input_ids"])


def grammar_target(seed: int = 1) -> Any:
    tokenizer = byte_tokenizer()
    size = len(tokenizer)
    return scripted(hash_law(seed, size), size, eos_ids=(tokenizer.eos_token_id,), tokenizer=tokenizer)


def writes(constraint: Any, seed: int, **options: Any) -> str:
    """What a random target writes under a constraint, greedy and sampled, with a tree oracle and by the book."""
    target = grammar_target(seed)
    asks = [
        Ask(text_ids("the"), Generation(max_new_tokens=60, constraint=constraint, **options), "greedy"),
        Ask(text_ids("a"), Generation(max_new_tokens=60, temperature=1, constraint=constraint, **options), "sampled"),
    ]
    trial = Trial.prepare(target, asks)
    outcomes = trial.check(lambda truths: {"tree": TreeOracle(truths, target.vocab_size, k=4)}, max_batch=2)
    results = [outcome.finished for outcome in outcomes.values()]
    assert any(result.metrics.accepted for result in results), "the oracle's drafts never engaged"
    return results[0].text


@pytest.mark.parametrize("seed", range(3))
def test_a_json_schema_shapes_the_text(seed: int) -> None:
    found = json.loads(writes(JsonSchema(schema=SCHEMA, compact=True), seed))
    assert set(found) == {"name", "age"} and isinstance(found["age"], int)


def test_a_json_schema_can_stand_in_a_file(tmp_path: Any) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"enum": ["cat", "hat"]}))
    schema = JsonSchema(schema=str(path))
    path.unlink()  # it was read when the constraint was made, not by its requests
    assert json.loads(writes(schema, 0)) in ("cat", "hat")


@pytest.mark.parametrize("seed", range(3))
def test_a_regex_matches_the_whole_text(seed: int) -> None:
    assert writes(Regex(pattern="(the|a) (cat|hat)( and (the|a) hat){2}"), seed).count(" and ") == 2


def test_a_lark_grammar_derives_the_text() -> None:
    text = writes(Lark(grammar='start: "[" start "]" | "x"'), 2)
    assert text.strip("[]") == "x" and text.count("[") == text.count("]")


def test_the_end_is_allowed_only_where_the_grammar_may_end() -> None:
    end = byte_tokenizer().eos_token_id
    state = Regex(pattern="ab?").begin(Vocabulary(len(byte_tokenizer()), frozenset({end}), byte_tokenizer()))
    (a,), (b,) = text_ids("a"), text_ids("b")
    assert not state.allowed()[end] and state.advance(end) is None
    after = state.advance(a)
    assert after is not None and after.allowed()[end] and after.allowed()[b]
    assert not state.allowed()[b], "advancing one state moved another"


def test_a_stop_id_counts_as_an_end() -> None:
    (x,) = text_ids("x")
    target = grammar_target()
    generation = Generation(max_new_tokens=9, stop_ids=[x], ignore_eos=True, constraint=Regex(pattern="aa"))
    result = serve(assemble(target), [Ask(text_ids("the"), generation)])["request"].finished
    assert result.tokens[-1] == x and result.finish_reason == "stop"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: JsonSchema(schema={"type": "nothing"}), "JsonSchema"),
        (lambda: JsonSchema(schema="no/such/file.json"), "no/such/file.json"),
        (lambda: JsonSchema(schema='{"type": '), "JsonSchema"),
        (lambda: JsonSchema(schema={"const": {1, 2}}), "JsonSchema"),
        (lambda: Regex(pattern="(a"), "Regex"),
        (lambda: Regex(pattern="(?=a)a"), "Regex"),
        (lambda: Lark(grammar="begin: x"), "Lark"),
    ],
)
def test_a_faulty_grammar_is_refused_when_it_is_written(build: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        build()


def test_a_grammar_needs_a_tokenizer_and_an_end() -> None:
    with pytest.raises(RequestError, match="tokenizer"):
        serve(
            assemble(scripted(hash_law(1, 5), 5, eos_ids=(0,))), [Ask((1,), Generation(constraint=Regex(pattern="a")))]
        )
    with pytest.raises(RequestError, match="ends the text"):
        settings = Generation(constraint=Regex(pattern="a"), ignore_eos=True)
        serve(assemble(grammar_target()), [Ask((1,), settings)])


def test_the_package_is_named_when_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RequestError, match=r"draftmux\[structured\]"):
        Regex(pattern="a")


@pytest.mark.parametrize("verifier", [Rejection(), Traversal()])
def test_ratio_rules_never_leave_the_grammar(verifier: Any) -> None:
    target = grammar_target()
    generation = Generation(max_new_tokens=40, temperature=1, constraint=Regex(pattern="(the|a|cat| )+x"))
    asks = [Ask(text_ids("a"), evolve(generation, seed=seed), f"r{seed}") for seed in range(8)]
    parts = assemble(target, {"random": RandomTree(target.vocab_size, nodes=12)}, verifier=verifier)
    for outcome in serve(parts, asks, 8).values():
        text = outcome.finished.text.removesuffix("x")
        for word in ("the", "cat", "a", " "):
            text = text.replace(word, "")
        assert text == "" or outcome.finished.finish_reason == "length"


class Failing:
    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self, vocabulary: Vocabulary) -> Any:
        return FailingState(self.after)


class FailingState(AutomatonState):
    def __init__(self, left: int) -> None:
        super().__init__(np.zeros((1, 6), dtype=np.int64))
        object.__setattr__(self, "left", left)

    def allowed(self) -> Any:
        if self.left <= 0:  # type: ignore[attr-defined]
            raise SystemExit("gone")
        return super().allowed()

    def advance(self, token: int) -> Any:
        return FailingState(self.left - 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_failing_constraint_ends_its_request_and_no_other(policy: Any) -> None:
    target = scripted(hash_law(3, 6), 6)
    asks = [
        Ask((1,), Generation(max_new_tokens=8, constraint=Failing(4)), "bad"),
        Ask((1,), Generation(max_new_tokens=8), "good"),
    ]
    parts = assemble(target, {"tree": RandomTree(6)}, policy=policy)
    outcomes = serve(parts, asks, max_batch=2)
    assert isinstance(outcomes["bad"].error, PluginError) and "constraint" in str(outcomes["bad"].error)
    assert sum(len(delta.pieces) for delta in outcomes["bad"].deltas) == 4, "it was cut before the fault or after it"
    assert len(outcomes["good"].finished.tokens) == 8


@frozen
class Answering:
    """A constraint whose answers are given."""

    begun: Any = None
    mask: Any = None
    ahead: Any = None

    def begin(self, vocabulary: Vocabulary) -> Any:
        return self if self.begun is None else self.begun()

    def allowed(self) -> Any:
        return np.arange(6) > 2 if self.mask is None else self.mask()

    def advance(self, token: int) -> Any:
        return self if self.ahead is None else self.ahead()


class Untouchable:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("hands off")


WRONG = {
    "begin gives a number": Answering(begun=lambda: 5),
    "a short mask": Answering(mask=lambda: np.ones(5, dtype=bool)),
    "a mask of numbers": Answering(mask=lambda: np.ones(6)),
    "no mask": Answering(mask=lambda: None),
    "a mask that cannot be read": Answering(mask=Untouchable),
    "advance gives True": Answering(ahead=lambda: True),
    "advance takes it back": Answering(ahead=[].pop),
}


@pytest.mark.parametrize("constraint", WRONG.values(), ids=WRONG)
def test_a_constraint_that_breaks_its_protocol_fails_its_own_request_alone(constraint: Any) -> None:
    asks = [
        Ask((1,), Generation(max_new_tokens=8, constraint=constraint), "bad"),
        Ask((1,), Generation(max_new_tokens=8), "good"),
    ]
    parts = assemble(scripted(hash_law(3, 6), 6), {"tree": RandomTree(6)}, policy="skip")
    try:
        outcomes = serve(parts, asks, max_batch=2)
    except PluginError as error:  # refused when it is submitted
        assert "constraint" in str(error)
        return
    assert isinstance(outcomes["bad"].error, PluginError) and "constraint" in str(outcomes["bad"].error)
    assert len(outcomes["good"].finished.tokens) == 8


def test_begin_must_give_a_state() -> None:
    with pytest.raises(PluginError, match="not None"):
        serve(assemble(scripted(hash_law(3, 6), 6)), [Ask((1,), Generation(constraint=Answering(begun=lambda: None)))])


@pytest.mark.parametrize("mask", [lambda: (np.arange(6) < 3)[::-1], lambda: np.broadcast_to(np.True_, (6,))])
def test_masks_may_be_views_and_read_only(mask: Any) -> None:
    settings = Generation(max_new_tokens=8, constraint=Answering(mask=mask))
    outcome = serve(assemble(scripted(hash_law(3, 6), 6), {"tree": RandomTree(6)}), [Ask((1,), settings)])["request"]
    assert len(outcome.finished.tokens) == 8 and not outcome.finished.metrics.faults


def test_an_end_needs_no_state_behind_it() -> None:
    ending = Answering(mask=lambda: np.arange(6) == 0, ahead=lambda: None)
    settings = Generation(max_new_tokens=8, constraint=ending)
    outcome = serve(assemble(scripted(hash_law(3, 6), 6, eos_ids=(0,))), [Ask((1,), settings)])["request"]
    assert outcome.finished.tokens == (0,) and outcome.finished.finish_reason == "stop"


@pytest.mark.parametrize("constraint", [Regex(pattern="a<end>b"), JsonSchema(schema={"const": "<end>"})])
def test_a_literal_that_spells_an_end_token_does_not_end_the_text(constraint: Any) -> None:
    outcome = serve(assemble(grammar_target()), [Ask((1,), Generation(max_new_tokens=30, constraint=constraint))])
    found = outcome["request"]
    if found.error is None:
        assert found.finished.text in ("a<end>b", '"<end>"')
    else:
        assert isinstance(found.error, RequestError) and "constraint" in str(found.error)


def test_files_name_constraints_and_their_faults(tmp_path: Any) -> None:
    path = tmp_path / "p.yaml"
    body = "backend: {use: scripted, table: {0: [0.0]}}\ngeneration:\n  constraint: "
    path.write_text(body + "{use: regexp, pattern: a}\n")
    with pytest.raises(PipelineError, match="did you mean 'regex'"):
        draftmux.load(path)
    path.write_text(body + "{use: regex, patern: a}\n")
    with pytest.raises(PipelineError, match="unknown key 'patern'"):
        draftmux.load(path)
    path.write_text(body + "{use: regex, pattern: a}\n")
    pipeline = draftmux.load(path)
    assert pipeline.spec.generation.constraint == Regex(pattern="a")


def test_settings_take_a_constraint_by_name_or_as_an_object() -> None:
    from draftmux.pipeline import override

    assert override(Generation(), {"constraint": {"use": "regex", "pattern": "a"}}).constraint == Regex(pattern="a")
    held = override(Generation(), {"constraint": Automaton(3)})
    assert override(held, {"seed": 2}).constraint == Automaton(3)
    assert override(held, {"constraint": None}).constraint is None
    with pytest.raises(RequestError, match="regexp"):
        override(Generation(), {"constraint": {"use": "regexp"}})


# Planted faults.


def follows_the_automaton() -> None:
    for seed in range(4):
        for temperature in (0.0, 1.0):
            generation = Generation(
                max_new_tokens=12, temperature=temperature, seed=seed, constraint=Automaton(seed, share=0.5)
            )
            trial = Trial.prepare(scripted(hash_law(seed, 7), 7, eos_ids=(0,)), [Ask((1, 2), generation)])
            trial.check(lambda truths: {"tree": TreeOracle(truths, 7, k=4)})


def cuts_drafts() -> None:
    """Illegal nodes are not scored: the target sees fewer rows."""
    target = scripted(hash_law(1, 7), 7, eos_ids=(0,))
    generation = Generation(max_new_tokens=12, constraint=Automaton(2, share=0.3))
    parts = assemble(target, {"random": RandomTree(7, nodes=20)})
    result = serve(parts, [Ask((1, 2), generation)])["request"].finished
    free = serve(parts, [Ask((1, 2), Generation(max_new_tokens=12))])["request"].finished
    assert result.metrics.drafted / result.metrics.steps < free.metrics.drafted / free.metrics.steps / 2


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


@FAULTS.breaks(follows_the_automaton)
def every_node_has_the_roots_state(patch: Any) -> None:
    patch.setattr(Constrained, "_after", lambda self, node: self.root)


@FAULTS.breaks(follows_the_automaton)
def the_state_stays_at_the_start(patch: Any) -> None:
    patch.setattr(step, "advanced", lambda state, tokens: state)


@FAULTS.breaks(follows_the_automaton)
def rejected_branches_move_the_state(patch: Any) -> None:
    def advance(self: Any, token: int) -> Any:
        ahead = int(self.moves[self.at, token])
        object.__setattr__(self, "at", max(ahead, 0))
        return self if ahead >= 0 else None

    patch.setattr(AutomatonState, "advance", advance)


@FAULTS.breaks(follows_the_automaton)
def greedy_decoding_takes_the_raw_best(patch: Any) -> None:
    original = sampling.Sampler.pick
    patch.setattr(
        sampling.Sampler,
        "pick",
        lambda self, node: int(self.scores.logits[node + 1].argmax()) if self.rule.greedy else original(self, node),
    )


@FAULTS.breaks(follows_the_automaton)
def the_bonus_token_is_not_advanced_over(patch: Any) -> None:
    patch.setattr(step, "advanced", lambda state, tokens: constraining.advanced(state, tokens[:-1]))


@FAULTS.breaks(cuts_drafts)
def illegal_nodes_are_scored(patch: Any) -> None:
    patch.setattr(Constrained, "legal", lambda self: self.draft)
