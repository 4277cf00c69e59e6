from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmux.backends.scripted import ScriptedTarget
from draftmux.bench.contenders import LineUp
from draftmux.bench.run import WARMUP_TOKENS, Plan, measure, trial_count
from draftmux.bench.suites import Row, Suite
from draftmux.errors import RequestError
from draftmux.generation import Generation

NAMES = ("plain", "one", "two")
Fakes = Callable[..., Any]


def suite_of(turns: Sequence[Sequence[str]]) -> Suite:
    return Suite("s", tuple(Row(str(i), "", tuple(row)) for i, row in enumerate(turns)))


def three(fake: Fakes, target: Any, **changes: Any) -> tuple[LineUp, list[Any]]:
    log: list[Any] = []
    fakes = tuple(fake(name, log, **changes.get(name, {})) for name in NAMES)
    return LineUp(fakes, target, Generation(max_new_tokens=changes.get("limit", 16))), log


@settings(deadline=None)
@given(
    turns=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    plan=st.builds(
        Plan,
        warmup=st.integers(0, 2),
        repeat=st.integers(1, 3),
        batch=st.integers(1, 3),
        seed=st.integers(0, 9),
    ),
)
def test_every_contender_once_a_repeat_and_all_before_the_next_prompt(
    fake: Fakes, tokenizer: Any, turns: list[int], plan: Plan
) -> None:
    target = ScriptedTarget(lambda prefix: [0.0] * 40, 40, tokenizer=tokenizer)
    line_up, log = three(fake, target)
    suite = suite_of([[f"w{i} w{turn}" for turn in range(count)] for i, count in enumerate(turns)])
    ticks: list[int] = []
    measured = measure(line_up, suite, plan, lambda done, what: ticks.append(done))

    assert ticks == list(range(trial_count(line_up, suite, plan)))
    assert Counter(name for name, _ in log[: 3 * plan.warmup]) == Counter(NAMES * plan.warmup)
    counted = log[3 * plan.warmup :]
    size = 3 * plan.repeat
    chunks = [counted[i : i + size] for i in range(0, len(counted), size)]
    assert len(chunks) == len(measured.units)
    for chunk, unit in zip(chunks, measured.units, strict=True):
        assert {prompts for _, prompts in chunk} == {tuple(prompt.tokens for prompt in unit.prompts)}
        rounds = [chunk[i : i + 3] for i in range(0, size, 3)]
        assert all({name for name, _ in one} == set(NAMES) for one in rounds)
        assert all(len(trials) == plan.repeat for trials in unit.trials.values())
    assert sum(len(unit.prompts) for unit in measured.units) == sum(turns)
    assert measured.stopped is None


def test_orders_are_drawn_anew_and_by_the_seed(fake: Fakes, dummy_target: Any) -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        line_up, log = three(fake, dummy_target)
        measure(line_up, suite_of([["w1"]] * 30), Plan(warmup=0, seed=seed))
        names = [name for name, _ in log]
        return [tuple(names[i : i + 3]) for i in range(0, len(names), 3)]

    assert orders(0) == orders(0)
    assert orders(0) != orders(1)
    firsts = Counter(order[0] for order in orders(0))
    assert set(firsts) == set(NAMES)
    assert max(firsts.values()) < 20


def test_warm_up_shows_no_prompt_of_the_suite_and_is_short(fake: Fakes, dummy_target: Any) -> None:
    line_up, log = three(fake, dummy_target, limit=100)
    measured = measure(line_up, suite_of([["w1 w2"]]), Plan(warmup=2))
    assert all(prompts[0] != (1, 2) for _, prompts in log[:6])
    assert line_up.contenders[0].limits == [WARMUP_TOKENS] * 2 + [100]  # type: ignore[attr-defined]
    assert len(measured.units) == 1


def test_a_later_turn_holds_the_answer_of_plain_decoding_for_everybody(fake: Fakes, dummy_target: Any) -> None:
    changes = {"plain": {"answer": lambda prompt: (7, 8)}, "one": {"answer": lambda prompt: (9,)}}
    line_up, log = three(fake, dummy_target, **changes)
    measure(line_up, suite_of([["w1", "w2", "w3"]]), Plan(warmup=0, repeat=2))
    asked = [prompts[0] for _, prompts in log]
    assert asked[::6] == [(1,), (1, 7, 8, 2), (1, 7, 8, 2, 7, 8, 3)]
    assert all(len(set(asked[i : i + 6])) == 1 for i in (0, 6, 12))


def test_a_chat_template_is_used_where_there_is_one(fake: Fakes, chat_tokenizer: Any) -> None:
    target = ScriptedTarget(lambda prefix: [0.0] * 40, 40, tokenizer=chat_tokenizer)
    line_up, log = three(fake, target, plain={"answer": lambda prompt: (7,)})
    measured = measure(line_up, suite_of([["w1", "w2"]]), Plan(warmup=0))
    assert [prompt.tokens for unit in measured.units for prompt in unit.prompts] == [
        (38, 1, 39),
        (38, 1, 39, 7, 38, 2, 39),
    ]
    assert [prompt.name for unit in measured.units for prompt in unit.prompts] == ["0 turn 1", "0 turn 2"]
    assert len(log) == 6


def test_prompts_that_do_not_fit_are_skipped_and_said_so(fake: Fakes, tokenizer: Any) -> None:
    target = ScriptedTarget(lambda prefix: [0.0] * 40, 40, max_length=4, tokenizer=tokenizer)
    line_up, log = three(fake, target)
    suite = suite_of([["w1 w2 w3"], ["w1 w2 w3 w4"], [" "], ["w1", "w2", "w3"]])
    measured = measure(line_up, suite, Plan(warmup=1, batch=2))
    assert [[prompt.name for prompt in unit.prompts] for unit in measured.units] == [["0"], ["3 turn 1"], ["3 turn 2"]]
    assert [line.split(";")[0] for line in measured.skipped] == [
        "prompt 1 has 4 tokens",
        "prompt 2 has 0 tokens",
        "prompt 3 turn 3 has 7 tokens",
    ]
    assert all(len(prompt) < 4 for _, prompts in log for prompt in prompts)


def test_no_prompt_that_fits_is_an_error(fake: Fakes, tokenizer: Any) -> None:
    target = ScriptedTarget(lambda prefix: [0.0] * 40, 40, max_length=2, tokenizer=tokenizer)
    measured = measure(three(fake, target)[0], suite_of([["w1 w2"]]), Plan(warmup=0))
    assert isinstance(measured.error, RequestError)
    assert "no prompt could be measured: prompt 0 has 2 tokens" in str(measured.error)


@pytest.mark.parametrize(
    ("error", "stopped"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (RequestError("no room"), "no room"),
        (MemoryError(), "MemoryError"),
    ],
)
@pytest.mark.parametrize("at", range(6))
def test_what_breaks_off_leaves_whole_units(
    fake: Fakes, dummy_target: Any, error: BaseException, stopped: str, at: int
) -> None:
    calls: list[int] = []

    def answer(prompt: tuple[int, ...]) -> tuple[int, ...]:
        calls.append(1)
        if len(calls) == at + 1:
            raise error
        return prompt

    line_up, log = three(fake, dummy_target, plain={"answer": answer})
    measured = measure(line_up, suite_of([["w1"]] * 9), Plan(warmup=1))
    assert measured.stopped == stopped
    assert measured.error is (error if isinstance(error, Exception) else None)
    assert len(measured.units) == max(0, at - 1)
    assert all(set(unit.trials) == set(NAMES) and unit.trials["two"] for unit in measured.units)
    assert Counter(name for name, _ in log)["plain"] == at + 1


def test_seconds_are_those_of_the_trial(fake: Fakes, dummy_target: Any) -> None:
    import time

    def slow(prompt: tuple[int, ...]) -> tuple[int, ...]:
        time.sleep(0.05)
        return prompt

    line_up, _ = three(fake, dummy_target, two={"answer": slow})
    measured = measure(line_up, suite_of([["w1 w2"]]), Plan(warmup=0))
    trials = {name: trials[0] for name, trials in measured.units[0].trials.items()}
    assert trials["two"].seconds >= 0.05 > trials["one"].seconds
    assert trials["two"].tokens == 2
