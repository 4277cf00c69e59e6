"""`draftmux train`: from prompts to a part that drafts, stopped and gone on with, and faults that say what to do."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file

from draftmux.bench.suites import from_file
from draftmux.training.answers import read_samples, shards

ANSWERS = ("--max-new-tokens", "8", "--batch", "4", "--held-out", "0.3", "--dtype", "float64")
HEAD = ("--tap", "0.resid_post", "--tap", "1.resid_post", "--vocabulary", "40", "--steps", "3", "--unroll", "2")
PIPELINE = """models:
  target: {{source: {model}, dtype: float64}}
drafters:
  part: {{{part}, self_test: false}}
generation: {{max_new_tokens: 12}}
"""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"Tell me {number}"}) for number in range(12)), "utf-8")
    return path


def test_a_head_is_trained_kept_and_drafts(model: Path, prompts: Path, tmp_path: Path, command: Any) -> None:
    out = tmp_path / "head"
    flags = ("--target", str(model), "--prompts", str(prompts), "--out", str(out), *ANSWERS, *HEAD)
    first = command("train", "eagle3", *flags)
    assert "12 of 12 prompts answered" in first.output
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert config["speculators_model_type"] == "eagle3"
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2]
    assert "train eagle3" in (out / "README.md").read_text("utf-8")
    written = [path.stat().st_mtime_ns for path in shards(out / "work" / "answers")]
    command("train", "eagle3", *flags)  # everything is there: nothing is answered or trained anew
    assert [path.stat().st_mtime_ns for path in shards(out / "work" / "answers")] == written
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(PIPELINE.format(model=model, part=f"use: eagle3, head: {out}, top_k: 1, depth: 2"), "utf-8")
    found = command("run", str(pipeline), "--prompt", "Tell me", "--json")
    assert json.loads(found.stdout)["metrics"]["drafted"] > 0


def test_answers_hold_the_states_of_every_position(model: Path, prompts: Path, tmp_path: Path, command: Any) -> None:
    out = tmp_path / "head"
    command("train", "eagle3", "--target", str(model), "--prompts", str(prompts), "--out", str(out), *ANSWERS, *HEAD)
    samples = [sample for path in shards(out / "work" / "answers") for sample in read_samples(path)]
    assert len({sample.key for sample in samples}) == 12
    for sample in samples:
        assert sample.states.shape == (len(sample.ids) - 1, 3 * 16)
        assert sample.prompt_length < len(sample.ids) <= sample.prompt_length + 8


def test_answers_with_other_states_are_not_taken(model: Path, prompts: Path, tmp_path: Path, command: Any) -> None:
    out = tmp_path / "head"
    flags = ("train", "eagle3", "--target", str(model), "--prompts", str(prompts), "--out", str(out), *ANSWERS)
    command(*flags, *HEAD[2:])
    for other in (("--tap", "0.resid_post", *HEAD[4:]), (*HEAD[2:], "--sampled", "1")):
        found = command(*flags, *other, code=1)
        assert "holds answers with" in found.output


def test_a_head_goes_on_from_another(model: Path, prompts: Path, tmp_path: Path, command: Any) -> None:
    flags = ("train", "eagle3", "--target", str(model), "--prompts", str(prompts), *ANSWERS, *HEAD)
    kept = ("--answers", str(tmp_path / "kept"))
    found = command(*flags, "--out", str(tmp_path / "b"), "--start", str(tmp_path / "no-such-head"), code=1)
    assert "no-such-head" in "".join(found.output.split())
    assert "answered" not in found.output  # a mistake is said before hours of work
    command(*flags, *kept, "--out", str(tmp_path / "a"))
    command(*flags, *kept, "--out", str(tmp_path / "b"), "--start", str(tmp_path / "a"), "--learning-rate", "0")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    rows = from_file(tmp_path / "a" / "work" / "held-out.jsonl").rows
    assert 0 < len(rows) < 12


def test_two_runs_do_not_answer_into_one_folder(model: Path, prompts: Path, tmp_path: Path, command: Any) -> None:
    kept = tmp_path / "kept"
    flags = ("--target", str(model), "--prompts", str(prompts), *ANSWERS, "--answers", str(kept), *HEAD)
    kept.mkdir()
    with FileLock(kept / ".lock"):
        found = command("train", "eagle3", "--out", str(tmp_path / "head"), *flags, code=1)
    assert "another run is answering into" in found.output and not shards(kept)
    command("train", "eagle3", "--out", str(tmp_path / "head"), *flags)


def test_runs_share_answers_whose_states_they_need_only_some_of(
    model: Path, prompts: Path, tmp_path: Path, command: Any
) -> None:
    kept, outs = tmp_path / "kept", (tmp_path / "head", tmp_path / "again", tmp_path / "alone")
    flags = ("--target", str(model), "--prompts", str(prompts), *ANSWERS)
    command("train", "eagle3", *flags, "--answers", str(kept), "--out", str(outs[0]), *HEAD)
    written = [path.stat().st_mtime_ns for path in shards(kept)]
    taps = ("--tap", "1.resid_post", *HEAD[4:])
    command("train", "eagle3", *flags, "--answers", str(kept), "--out", str(outs[1]), *taps)
    command("train", "eagle3", *flags, "--out", str(outs[2]), *taps)
    assert [path.stat().st_mtime_ns for path in shards(kept)] == written
    assert not (outs[0] / "work" / "answers").exists()
    first, second = (load_file(out / "model.safetensors") for out in outs[1:])
    assert all(torch.equal(first[name], second[name]) for name in first)


def loss(said: str) -> float:
    return float(re.findall(r"loss ([0-9.]+)", said)[-1])


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks transformers
@pytest.mark.parametrize("more", [(), ("--optimizer", "muon", "--learn", "all")])
def test_an_adapter_is_distilled_and_drafts(
    model: Path, prompts: Path, tmp_path: Path, command: Any, more: tuple[str, ...]
) -> None:
    pytest.importorskip("peft")
    out = tmp_path / "adapter"
    flags = ("--target", str(model), "--prompts", str(prompts), "--out", str(out), *ANSWERS, *more)
    flags = ("train", "draft", *flags, "--layers", "1", "--rank", "2", "--learning-rate", "0.02", "--warmup", "0")
    losses = [loss(command(*flags, "--steps", steps).output) for steps in ("3", "12")]
    assert losses[1] < losses[0] - 0.01  # the mean of all steps since the last report
    kept = json.loads((out / "draftmux.json").read_text("utf-8"))
    chosen = (kept["recipe"]["optimizer"], kept["recipe"]["learn"])
    assert kept["layers"] == 1 and chosen == (("muon", "all") if more else ("adamw", "answers"))
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(PIPELINE.format(model=model, part=f"use: sps, layers: 1, adapter: {out}"), "utf-8")
    ran = command("run", str(pipeline), "--prompt", "Tell me", "--json")
    assert json.loads(ran.stdout)["metrics"]["drafted"] > 0


@pytest.mark.parametrize(
    "fault",
    [
        ("--tap", "nowhere", 2, "--tap: tap 'nowhere' is not LAYER.KIND"),
        ("--steps", "0", 2, "'steps' must be >= 1: 0"),
        ("--prompts", "missing", 1, "'missing' is no file, and no data set that can be loaded: no network"),
    ],
)
def test_faults_are_said_in_a_line(
    model: Path,
    prompts: Path,
    tmp_path: Path,
    command: Any,
    monkeypatch: pytest.MonkeyPatch,
    fault: tuple[str, str, int, str],
) -> None:
    def unreachable(name: str, split: str) -> None:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=unreachable))
    flag, value, code, said = fault
    given = {"--target": str(model), "--prompts": str(prompts), "--out": str(tmp_path / "head"), flag: value}
    found = command("train", "eagle3", *[part for pair in given.items() for part in pair], code=code)
    assert said in " ".join(found.output.split())
