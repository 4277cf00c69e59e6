"""`draftmux train arbiter`: from problems to a verifier that decides, stopped and gone on with; faults are said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks transformers
SMALL = "--held-out 0.4 --max-new-tokens 10 --batch 8 --rank 2 --warmup-steps 4 --rows 4 --group 2 --every 1"
PAIR = """models:
  target: {{source: '{model}', dtype: float64}}
drafters:
  draft: {{use: sps, layers: 1, depth: 4, self_test: false}}
generation: {{max_new_tokens: 12}}
"""


@pytest.fixture
def pair(tmp_path: Path, model: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(PAIR.format(model=model), "utf-8")
    return path


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """The tiny model solves none by being clever: which answers are right is a matter of chance."""
    path = tmp_path / "problems.jsonl"
    rows = [{"prompt": f"Tell me {number}", "reference": "a", "family": "f"} for number in range(14)]
    path.write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return path


class Chance:
    """Right where the answer's code points have an even sum: what a tiny random model can be rewarded for."""

    def solved(self, answer: str, reference: str) -> bool:
        return sum(map(ord, answer)) % 2 == 0


@pytest.mark.slow
def test_both_stages_give_a_verifier_that_decides(
    pair: Path, problems: Path, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    from draftmux.verifiers.cospec import optimise

    teaching = optimise.teaching
    monkeypatch.setattr("draftmux.cli.train_arbiter.task_of", lambda name: Chance())
    out = tmp_path / "arbiter"
    flags = ["train", "arbiter", "--pipeline", str(pair), "--problems", str(problems), "--task", "chance"]
    flags += ["--out", str(out), *SMALL.split(), "--rate", "0.001", "--resample", "1"]
    times = []

    def noted(*given: Any) -> Any:
        times.append(given[-1])
        return teaching(*given)

    monkeypatch.setattr(optimise, "teaching", noted)
    command(*flags, "--steps", "2")
    assert times == [1, 1]
    about = json.loads((out / "arbiter.json").read_text("utf-8"))
    assert about["metrics"]["grpo"]["step"] == 2 and "auc" in about["metrics"]["warmup"]
    steps = [json.loads(line) for line in (out / "work" / "grpo" / "steps.jsonl").read_text("utf-8").splitlines()]
    assert [each["step"] for each in steps] == [1, 2] and all(0 <= each["kept"] <= 1 for each in steps)
    labels = (out / "work" / "mismatches.jsonl").read_text("utf-8")
    command(*flags, "--steps", "3")  # it goes on where it was
    assert (out / "work" / "mismatches.jsonl").read_text("utf-8") == labels
    steps = [json.loads(line) for line in (out / "work" / "grpo" / "steps.jsonl").read_text("utf-8").splitlines()]
    assert [each["step"] for each in steps] == [1, 2, 3] and times == [1, 1, 1]
    decides = tmp_path / "decides.yaml"
    verifier = f"verifier: {{use: cospec-arbiter, arbiter: '{out}', draft: draft, threshold: 0.0}}\nlossless: false\n"
    decides.write_text(pair.read_text("utf-8") + verifier, "utf-8")
    result = json.loads(command("run", str(decides), "--prompt", "Tell me 3", "--json").stdout)
    assert result["lossless"] is False and result["metrics"]["verifier"]["kept"] > 0


@pytest.mark.slow
def test_labels_are_outcomes(pair: Path, problems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each label by the book: decode both branches plainly, and look."""
    from draftmux.cli.train_arbiter import open_pair
    from draftmux.generation import Generation
    from draftmux.verifiers.cospec.mining import LABELS, Choice, Rig, by_outcome
    from draftmux.verifiers.cospec.problems import read_problems

    pipeline, _ = open_pair(str(pair), ())
    rig = Rig(pipeline.parts, pipeline.tokenizer, Generation(max_new_tokens=12), 4)
    known = read_problems(problems)
    rows = by_outcome(rig, known, Chance(), Choice(2, 0))
    assert len(rows) > 8
    by_key = {problem.key: problem for problem in known}
    for row in rows:
        start = rig.ask("", by_key[row.key]).tokens
        assert row.sample.drafted[: row.place] == row.sample.verified[: row.place]
        prefix = (*row.sample.context.tolist(), *row.sample.drafted[: row.place + 1])
        room = 12 - (len(prefix) - len(start))
        rest = pipeline.generate(list(prefix), max_new_tokens=room).tokens if room else ()
        plain = pipeline.generate(list(start), max_new_tokens=12).tokens
        right = tuple(Chance().solved(rig.text(ids), "") for ids in ((*prefix, *rest)[len(start) :], plain))
        assert row.right == right and row.label == LABELS[right]  # type: ignore[index]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "x"}', "has no `reference`"),
        ('{"prompt": "x", "reference": 3}', "has no `reference`"),
        ('{"reference": "3"}', "has no user's turn"),
        ("{", "is no JSON"),
    ],
)
def test_problems_that_cannot_be_used_are_named(pair: Path, tmp_path: Path, command: Any, line: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"prompt": "a", "reference": "b"}\n' + line, "utf-8")
    flags = ("--pipeline", str(pair), "--problems", str(path), "--task", "exact-string", "--out", str(tmp_path / "o"))
    assert f"bad.jsonl:2 {said}" in command("train", "arbiter", *flags, code=1).output


def test_faults_are_said_in_a_line(pair: Path, problems: Path, tmp_path: Path, command: Any, model: Path) -> None:
    flags = ("--problems", str(problems), "--out", str(tmp_path / "o"))
    missing = command("train", "arbiter", "--pipeline", str(pair), "--task", "nothing", *flags, code=1)
    assert "no package publishes a task 'nothing'" in missing.output
    other = tmp_path / "copy.yaml"
    other.write_text(f"models: {{target: {{source: '{model}'}}}}\ndrafters: {{copy: {{use: pld}}}}\n", "utf-8")
    refused = command("train", "arbiter", "--pipeline", str(other), "--task", "exact-string", *flags, code=1)
    assert "use: sps" in refused.output


def test_a_pipeline_that_has_an_arbiter_already_is_trained_without_it(pair: Path, tmp_path: Path) -> None:
    from draftmux.cli.train_arbiter import open_pair

    path = tmp_path / "again.yaml"
    more = "verifier: {use: cospec-arbiter, arbiter: ./nowhere, draft: draft}\nlossless: false\n"
    path.write_text(pair.read_text("utf-8") + more + "backend: {use: transformers, attention: eager}\n", "utf-8")
    pipeline, drafter = open_pair(str(path), ())
    assert (pipeline.spec.verifier.use, drafter) == ("exact-match", "draft")
    assert pipeline.spec.backend.plugin.attention == "eager"
    assert open_pair(str(path), ("backend={use: static}",))[0].spec.backend.use == "transformers"


class Raising:
    def solved(self, answer: str, reference: str) -> bool:
        raise KeyError(reference)


def test_a_task_that_fails_and_a_folder_that_cannot_be_are_said(
    pair: Path, problems: Path, tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    monkeypatch.setattr("draftmux.cli.train_arbiter.task_of", lambda name: Raising())
    flags = ["train", "arbiter", "--pipeline", str(pair), "--problems", str(problems), "--task", "x", *SMALL.split()]
    failed = command(*flags, "--out", str(tmp_path / "o"), code=1)
    assert "task Raising failed on the reference 'a'" in failed.output
    (tmp_path / "file").write_text("x", "utf-8")
    refused = command(*flags, "--out", str(tmp_path / "file" / "o"), code=1)
    assert "cannot be written to" in refused.output


PLAYED = """
import os, sys
from pathlib import Path
from draftmux.cli.main import main
from draftmux.verifiers.cospec.grpo import Group

play = Group.play

def noted(self, rig, problems, *rest):
    with Path(sys.argv[0]).with_name("played-" + os.environ["RANK"]).open("a") as file:
        print(*(problem.prompt.key for problem in problems), file=file)
    return play(self, rig, problems, *rest)

Group.play = noted
main()
"""


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(pair: Path, problems: Path, tmp_path: Path) -> None:
    """Under `torchrun` each decodes its share of the rollouts, and gradients are added up."""
    pytest.importorskip("peft")
    flags = ["train", "arbiter", "--pipeline", str(pair), "--problems", str(problems), "--task", "exact-string"]
    flags += [*SMALL.replace("--warmup-steps 4", "--warmup-steps 0").split(), "--steps", "3"]
    flags += ["--chosen", "3", "--threads", "1", "--rate", "0.01"]
    told, played, env = [], [], {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "script.py").write_text(PLAYED, "utf-8")
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(count)]
        command = [*launch, str(folder / "script.py"), *flags, "--out", str(folder / "out")]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=140, env=env)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        lines = (folder / "out" / "work" / "grpo" / "steps.jsonl").read_text("utf-8").splitlines()
        told.append([json.loads(line) for line in lines])
        shares = [(folder / f"played-{rank}").read_text("utf-8").splitlines() for rank in range(count)]
        played.append([[share.split() for share in step] for step in zip(*shares, strict=True)])
    assert len(told[0]) == len(told[1]) == len(played[0]) == len(played[1]) == 3
    for one, two in zip(*told, strict=True):
        assert two["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=1e-4) and one["gradient_norm"] > 0
    assert told[0][0]["kl"] < 1e-9 < min(row["kl"] for run in told for row in run[1:])  # what they learn moves them
    for [whole], shares in zip(*played, strict=True):
        assert [len(share) for share in shares] == [2, 1]
        assert sorted(key for share in shares for key in share) == sorted(whole)
