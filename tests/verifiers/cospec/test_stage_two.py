"""What stage 2 learns from: decisions with an effect alone, unless told otherwise; shares of processes add up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from matplotlib.figure import Figure

from draftmux.bench.plot import LIGHT
from draftmux.errors import PluginError, RequestError
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask as Request
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Acceptance, Draft
from draftmux.verifiers.cospec import grpo
from draftmux.verifiers.cospec.grpo import Decided, Group, Scored, decided, minibatches, teaching
from draftmux.verifiers.cospec.monitors import _chart, curves, of_answers, of_rollouts
from draftmux.verifiers.cospec.network import Batch, Sample
from draftmux.verifiers.cospec.optimise import Stage, best, read_steps, stopped
from draftmux.verifiers.cospec.policy import loss_of
from draftmux.verifiers.cospec.problems import formed
from draftmux.verifiers.cospec.random import RandomArbiter
from draftmux.verifiers.cospec.recipe import ArbiterRecipe, Objective
from draftmux.verifiers.cospec.reward import Reach, Reward
from draftmux.verifiers.cospec.rollouts import Consulted, Course, Watching, watching


def sample(drafted: tuple[int, ...] = (1, 2, 3, 4), verified: tuple[int, ...] = (1, 9, 3, 8)) -> Sample:
    numbers = np.tile(np.array([[-2.0, -0.1, 0.5, 1.0, -0.2]], dtype=np.float32), (len(drafted), 1))
    return Sample(np.array([5, 6]), drafted, verified, numbers)


def scored(course: Course, right: bool, advantage: float, tokens: int = 8, passes: int = 4) -> Scored:
    problem: Any = None
    return Scored(problem, course, right, 1.5 if right else -0.5, advantage, tokens, passes)


def courses() -> tuple[Course, Course]:
    kept_then_refused = Consulted(sample(), [1, 3], [True, False], [0.75, 0.5])
    refused = Consulted(sample(), [1], [False], [0.25], {3: (True, 0.9)})
    return Course([Reach(1, 3, 4)], [kept_then_refused]), Course([Reach(1, 1, 4)], [refused])


def test_only_consulted_decisions_learn() -> None:
    one, two = courses()
    two.consulted[0].idle = {}
    rollouts = [scored(one, True, 1.0), scored(two, False, -1.0)]
    blocks = decided(rollouts, "dapo")
    assert [(block.places, block.kept, block.advantage) for block in blocks] == [
        ((1, 3), (True, False), 1.0),
        ((1,), (False,), -1.0),
    ]
    assert [block.weight for block in blocks] == pytest.approx([1 / 3, 1 / 3])


def test_decisions_without_effect_learn_when_told() -> None:
    one, two = courses()
    blocks = decided([scored(one, True, 1.0), scored(two, False, -1.0)], "dapo")
    assert (blocks[1].places, blocks[1].kept, blocks[1].chances) == ((1, 3), (False, True), (0.25, 0.9))
    assert [block.weight for block in blocks] == pytest.approx([1 / 4, 1 / 4])


def test_figures_of_rollouts_by_hand() -> None:
    one, two = courses()
    rollouts = [scored(one, True, 1.0), scored(two, False, -1.0)]
    told = of_rollouts(rollouts, Group(2, Reward(unlikely=0.5)), frozenset({9}))
    assert told["right"] == 0.5 and told["reward"] == pytest.approx(0.5)
    assert told["kept"] == pytest.approx(1 / 3)  # 1 of 3 decisions
    assert told["span"] == pytest.approx((2 / 3 + 0) / 2) and told["accepted"] == 2
    assert told["risk"] == pytest.approx((1.0 + 0) / 2)  # log p is -2, below twice log 0.5
    assert (told["kept_end"], told["overridden_end"]) == (0, 1)  # token 2 was kept where the target had 9
    assert (told["groups_alike"], told["groups_mixed"]) == (0, 1)
    assert told["tokens_per_pass"] == 2


def test_flips_by_hand() -> None:
    told = of_answers([True, True, False, False], [True, False, True, False])
    assert told == {"held_right": 0.5, "target_right": 0.5, "to_right": 0.25, "to_wrong": 0.25}


@pytest.mark.parametrize(
    ("held", "patience", "ends"), [([0.4] * 3, 3, True), ([0.4] * 2, 3, False), ([0.4, 0.5, 0.4], 3, False)]
)
def test_it_stops_when_it_stays_below_the_target(held: list[float], patience: int, ends: bool) -> None:
    assert stopped([{"held_right": each, "target_right": 0.5} for each in held], patience) is ends


def lines(names: tuple[str, ...], steps: Any, looks: Any) -> dict[Any, tuple[list[float], list[float]]]:
    axes = Figure().subplots()
    _chart(axes, "title", names, steps, looks, LIGHT)
    return {line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines}


def test_curves_are_of_what_there_is() -> None:
    """Of rollouts as means of ten steps, of held-out problems as they were."""
    steps = [{"step": i + 1, "right": float(i == 11), "kept": 0.5} for i in range(12)]
    looks = [{"step": 6, "right": 0.0, "held_right": 0.4}, {"step": 12, "right": 1.0, "held_right": 0.6}]
    drawn = lines(("right", "kept", "kl"), steps, looks)
    assert drawn.keys() == {"right", "kept"} and drawn["kept"][1] == pytest.approx([0.5] * 3)
    assert drawn["right"][0] == [10, 11, 12] and drawn["right"][1] == pytest.approx([0, 0, 0.1])
    assert lines(("held_right",), steps, looks) == {"held_right": ([6, 12], [0.4, 0.6])}
    assert lines(("held_right",), [], []) == {}


@pytest.mark.slow
def test_curves_are_one_picture() -> None:
    steps = [{"step": i + 1, "right": 0.5, "kept": 0.1, "kl": 0.0} for i in range(4)]
    empty, drawn = curves([], []), curves(steps, [{"step": 4, "held_right": 0.4, "target_right": 0.5}])
    assert empty.startswith(b"\x89PNG") and drawn.startswith(b"\x89PNG") and empty != drawn


def test_idle_decisions_are_drawn_and_change_nothing(pair: Any) -> None:
    """Rollouts are the same with and without them; they stand behind a refusal, at places that differ."""
    ours = pair("transformers")
    found = {}
    for idle in (False, True):
        parts, watched = watching(
            assemble(ours.target, {"draft": ours.drafter}, verifier=ours.bound()), ours.bound(), True, idle
        )
        asks = [Request((1, i, 3), Generation(max_new_tokens=30, ignore_eos=True, seed=i), f"r{i}") for i in range(3)]
        done = serve(parts, asks, 3)
        found[idle] = {name: (done[name].finished.tokens, watched.courses[name]) for name in ("r0", "r1", "r2")}
    count = 0
    for name, (tokens, course) in found[True].items():
        assert tokens == found[False][name][0]
        for mine, other in zip(course.consulted, found[False][name][1].consulted, strict=True):
            assert (mine.places, mine.kept) == (other.places, other.kept) and not other.idle
            count += len(mine.idle)
            if mine.idle:
                assert not mine.kept[-1] and min(mine.idle) > mine.places[-1]
                assert all(mine.sample.drafted[p] != mine.sample.verified[p] for p in mine.idle)
    assert count > 0


@pytest.mark.parametrize(
    ("accepted", "places", "reach"),
    [(0, [0], Reach(0, 0, 2)), (1, [1], Reach(1, 1, 2)), (2, [0], Reach(0, 2, 2)), (2, [], None)],
)
def test_what_is_drafted_behind_an_end_counts_in_no_span(accepted: int, places: list[int], reach: Reach | None) -> None:
    """A draft of four whose second token ends the text: kept or refused, only two could be accepted."""
    arbitration: Any = RandomArbiter(rate=0.0).bind(Resources(backend=scripted(hash_law(0, 10), 10)))
    watched = Watching(arbitration)
    course = watched.courses["r"] = Course()
    if places:
        course.consulted.append(Consulted(sample(), places, [True] * len(places), [0.5] * len(places)))
    draft = Draft.chain([4, 9, 7, 8])
    request: Any = SimpleNamespace(
        draft=draft, context=SimpleNamespace(request_id="r", generation=Generation(stop_ids=(9,)))
    )
    watched._note(request, 0, Acceptance(tuple(range(accepted)), 3))
    assert course.blocks == ([] if reach is None else [reach])


def test_no_two_rollouts_of_a_step_draw_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor those of two steps; and they are the same in whatever share of a step's problems they stand."""
    seeds: dict[int, dict[str, int]] = {}

    def ask(name: str, problem: Any, seed: int) -> Any:
        return SimpleNamespace(name=name, seed=seed)

    def noted(parts: Any, tokenizer: Any, asks: Any, batch: int) -> Any:
        seeds[len(seeds)] = {each.name: each.seed for each in asks}
        raise InterruptedError

    monkeypatch.setattr(grpo, "roll_out", noted)
    monkeypatch.setattr(grpo, "watching", lambda *_, **__: (None, None))
    rig: Any = SimpleNamespace(parts=None, tokenizer=None, batch=4, ask=ask)
    some: Any = [SimpleNamespace(key=key) for key in "abcd"]
    for problems, step in ((some, 1), (some, 2), (some[1::2], 1)):
        with pytest.raises(InterruptedError):
            Group(3, Reward()).play(rig, problems, None, None, step)  # type: ignore[arg-type]
    assert len({*seeds[0].values(), *seeds[1].values()}) == 24
    assert seeds[2].items() < seeds[0].items()


def test_problems_that_teach_nothing_give_their_place_to_others() -> None:
    """Groups of two; what is idle by hand. The others keep their places, and nothing is drawn twice."""
    idle, asked = {"b", "c", "x"}, []

    def play(problems: Any) -> list[Scored]:
        asked.append("".join(problems))
        return [evolve(scored(courses()[0], True, float(p not in idle)), problem=p) for p in problems for _ in range(2)]

    def found(times: int, others: str) -> tuple[str, str, list[str]]:
        asked.clear()
        both = teaching(play, list("abcd"), list(others), 2, times)  # type: ignore[arg-type]
        first, rollouts = ("".join(str(each.problem) for each in some[::2]) for some in both)
        return first, rollouts, list(asked)

    assert found(0, "xyz") == ("abcd", "abcd", ["abcd"])
    assert found(1, "xyz") == ("abcd", "axyd", ["abcd", "xy"])
    assert found(2, "xyz") == ("abcd", "azyd", ["abcd", "xy", "z"])
    assert found(9, "x") == ("abcd", "axcd", ["abcd", "x"])


@pytest.mark.parametrize("resample", [0, 1])
def test_processes_share_the_problems_of_a_step_and_those_that_may_follow(resample: int) -> None:
    """Together they have what one has; nothing twice."""
    problems: Any = [SimpleNamespace(key=str(number)) for number in range(20)]

    def drawn(index: int, shares: int) -> list[list[str]]:
        stage: Any = SimpleNamespace(
            recipe=ArbiterRecipe(chosen=5, resample=resample, seed=3),
            accelerator=SimpleNamespace(process_index=index, num_processes=shares),
        )
        return [[problem.key for problem in part] for part in Stage._drawn(stage, problems, 7)]

    chosen, others = drawn(0, 1)
    assert len(chosen) == 5 and len({*chosen, *others}) == (20 if resample else 5) == len(chosen) + len(others)
    halves = [drawn(index, 2) for index in (0, 1)]
    for whole, parts in zip((chosen, others), zip(*halves, strict=True), strict=True):
        assert sorted(whole) == sorted([*parts[0], *parts[1]])


class Spelled:
    """A task that nothing solves, and that asks for an `a`."""

    def solved(self, answer: str, reference: str) -> bool:
        return False

    def formed(self, answer: str) -> bool:
        return "a" in answer


@pytest.mark.parametrize(("malformed", "task", "earned"), [(0.0, Spelled(), 0), (-1.0, Spelled(), -1), (-1.0, None, 0)])
def test_malformed_answers_earn_less(monkeypatch: pytest.MonkeyPatch, malformed: float, task: Any, earned: int) -> None:
    """Where there is a price, and the task asks for a form."""
    result = SimpleNamespace(tokens=(), metrics=SimpleNamespace(steps=1))
    courses = {f"p/{number}": Course() for number in range(2)}
    monkeypatch.setattr(grpo, "roll_out", lambda *_: dict.fromkeys(courses, result))
    asked: list[Any] = []

    def watching(parts: Any, arbitration: Any, **how: bool) -> Any:
        asked.append(how)
        return None, SimpleNamespace(courses=courses)

    monkeypatch.setattr(grpo, "watching", watching)
    texts = iter(["an answer", "no"])
    rig: Any = SimpleNamespace(
        parts=None, tokenizer=None, batch=2, ask=lambda *_, **__: None, text=lambda _: next(texts)
    )
    task = task or SimpleNamespace(solved=lambda *_: False)
    problem: Any = SimpleNamespace(key="p", reference="b")
    group = Group(2, Reward(malformed=malformed), idle=bool(malformed))
    found = group.play(rig, [problem], task, None, 1)  # type: ignore[arg-type]
    assert [each.reward for each in found] == [0, earned]
    assert asked == [{"explore": True, "idle": bool(malformed)}]


def test_groups_are_as_the_recipe_says() -> None:
    reward = Reward()
    assert Group.of(ArbiterRecipe(group=4), reward) == Group(4, reward, scaled=True, idle=False)
    other = ArbiterRecipe(advantage="centred", credit="all")
    assert Group.of(other, reward) == Group(other.group, reward, scaled=False, idle=True)


def test_a_task_whose_form_fails_is_named() -> None:
    def fails(answer: str) -> bool:
        raise ZeroDivisionError

    with pytest.raises(PluginError, match="SimpleNamespace failed on the answer 'x'"):
        formed(SimpleNamespace(formed=fails), "x")  # type: ignore[arg-type]


class Table(torch.nn.Module):
    """A network whose logits `(B, K)` are its parameters, by the first token of a block's context."""

    def __init__(self, values: list[list[float]]) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(values))
        self.backbone = SimpleNamespace(device=torch.device("cpu"))

    def forward(self, batch: Batch) -> torch.Tensor:
        starts = [int(ids[ids != 39][0]) for ids in batch.ids]
        return self.logits[starts, : batch.rows.shape[1]]


def block(start: int, places: tuple[int, ...], kept: tuple[bool, ...], advantage: float) -> Decided:
    own = Sample(np.array([start, 6, *[7] * start]), (1, 2, 3, 4), (1, 9, 3, 8), sample().features)
    return Decided(own, places, kept, (0.5,) * len(places), advantage, 1 / 3)


@pytest.mark.parametrize("rows", [1, 8])
def test_only_what_took_effect_has_a_gradient(rows: int) -> None:
    """Two blocks of different length, in batches: the places behind a refusal, and those that agree, have none; the
    signs are those of the advantage."""
    policy: Any = Table([[0.0] * 4, [0.0] * 4])
    blocks = [block(1, (1, 3), (True, False), 1.0), block(0, (1,), (False,), -1.0)]
    for batch in minibatches(blocks, policy, (64, 39), rows, heat=2.0):
        loss_of(Objective(temperature=2.0, beta=0.0), batch.decisions, batch.logits(policy)).backward()
    gradient = policy.logits.grad
    assert gradient[0].tolist() == pytest.approx([0, -1 / 12, 0, 0])  # refused and bad: refuse less, so logit up
    assert gradient[1].tolist() == pytest.approx([0, -1 / 12, 0, 1 / 12])  # kept and good: up; refused and good: down


def test_the_policy_that_decided_is_what_is_compared_with() -> None:
    """Chances of another policy than the present one: the ratio is theirs, and is clipped."""
    policy: Any = Table([[0.0] * 4])
    old = evolve(block(0, (1,), (True,), 1.0), chances=(0.4,), weight=1.0)
    [batch] = minibatches([old], policy, (64, 39), 8, heat=1.0)
    assert float(batch.decisions.behaviour.exp()) == pytest.approx(0.4)
    loss = loss_of(Objective(beta=0.0), batch.decisions, batch.logits(policy))
    assert float(loss.detach()) == pytest.approx(-1.2)  # 0.5 / 0.4 is 1.25, clipped


@pytest.mark.parametrize(("held", "which"), [([0.5, 0.6, 0.6, 0.4], 2), ([0.5], 0)])
def test_the_best_look_is_the_last_of_the_best(held: list[float], which: int) -> None:
    looks = [{"held_right": each} for each in held]
    assert best(looks) is looks[which]


def test_a_damaged_file_of_steps_is_named(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    assert read_steps(path, 5) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n', "utf-8")
    assert [row["step"] for row in read_steps(path, 2)] == [1, 2]
    for text in ('{"step": 1}\n{"st', "null\n", "{}\n"):
        path.write_text(text, "utf-8")
        with pytest.raises(RequestError, match=r"steps\.jsonl cannot be read"):
            read_steps(path, 5)
