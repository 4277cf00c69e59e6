"""`draftmux train` in processes that `torchrun` starts: it is through, goes on, and does nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ANSWERS = "--max-new-tokens 8 --batch 4 --held-out 0.3 --dtype float64"
PARTS = {
    "eagle3": f"{ANSWERS} --tap 0.resid_post --tap 1.resid_post --vocabulary 40 --unroll 2 --steps",
    "draft": f"{ANSWERS} --layers 1 --rank 2 --steps",
    "arbiter": "--task exact-string --max-new-tokens 10 --batch 8 --held-out 0.4 --rank 2 --rows 4 --group 2 "
    "--warmup-steps 4 --chosen 3 --every 1 --steps",
}
WRITTEN = {"eagle3": "config.json", "draft": "adapter_model.safetensors", "arbiter": "arbiter.json"}


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_two_processes_train_it_and_go_on(part: str, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    rows = [{"prompt": f"Tell me {number}", "reference": "a"} for number in range(14)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "pair.yaml").write_text(
        f"models: {{target: {{source: '{model}', dtype: float64}}}}\n"
        "drafters: {draft: {use: sps, layers: 1, depth: 4, self_test: false}}\n",
        "utf-8",
    )
    source = "--pipeline pair.yaml --problems" if part == "arbiter" else f"--target {model} --prompts"
    said: list[list[str]] = []
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "draftmux", "train", part]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for steps in ("2", "3", "3"):
        flags = f"{source} rows.jsonl --out out --threads 1 {PARTS[part]} {steps}".split()
        ran = subprocess.run([*launch, *flags], check=False, capture_output=True, cwd=tmp_path, timeout=90, env=env)
        assert ran.returncode == 0, ran.stderr.decode()
        said.append([line for line in ran.stderr.decode().splitlines() if line.startswith("step")])
    assert f"step {steps}" in said[1][-1].partition(":")[0] and said[0] and not said[2]
    assert (tmp_path / "out" / WRITTEN[part]).is_file()


@pytest.mark.parametrize("part", ["probe", "accepted-length", "prompts"])
def test_what_is_not_shared_runs_in_one(
    part: str, tmp_path: Path, command: Any, follower: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    out = tmp_path / "out"
    given = () if part == "prompts" else ("--prompts", "x")
    said = command("train", part, "--target", "x", "--out", str(out), *given, code=1).output
    assert f"train {part} runs in one process, and 2 were started" in " ".join(said.split())
