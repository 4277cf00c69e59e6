"""Several processes of a training run: they share the work, part together, and no fault of one stays unsaid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from draftmux.cli.train_arbiter import open_pair
from draftmux.errors import ModelError, RequestError
from draftmux.training.processes import alone, processes, together

LEARNS = """
import sys, json, torch
from pathlib import Path
from draftmux.training.loop import Course, fit
from draftmux.training.processes import processes, together
from draftmux.training.recipe import Schedule

class Squares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    def forward(self, batch, done):
        return (((batch @ self.weight - 1.0) ** 2).mean(),)

def epoch(number):
    data = torch.randn(8, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
    return iter(data if int(sys.argv[2]) == 1 else data.reshape(4, 8, 3))

def collate(drawn):
    return drawn

with together():
    rank = processes().process_index
    objective = Squares()
    course = Course(epoch, collate, lambda module, device: {}, lambda step, figures: None)
    fit(objective, Schedule(6, 0.1, 0, 1.0, 'no', 'adamw'), course, Path(sys.argv[1]), {})
assert not torch.distributed.is_initialized()
Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(objective.weight.tolist()))
"""


def test_work_that_is_not_shared_is_refused(follower: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="train probe runs in one process, and 2 were started"):
        alone("train probe")
    monkeypatch.setenv("WORLD_SIZE", "1")
    alone("train probe")


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_the_second_alone_is_said(
    follower: list[float], rank: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setattr("sys.__stderr__", sys.stderr)
    with pytest.raises(RequestError), together():
        raise RequestError("no room")
    assert capfd.readouterr().err == ("Error: rank 1 of 2: no room\n" if rank else "")
    assert bool(follower) == bool(rank)


def test_processes_that_cannot_be_joined_are_an_error(follower: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device for which accelerate knows no way to talk."""
    monkeypatch.setattr("draftmux.backends.parallel.group.own_device", lambda ranks: torch.device("meta"))
    monkeypatch.setattr(
        "accelerate.PartialState", lambda **options: SimpleNamespace(num_processes=1, wait_for_everyone=int)
    )
    with pytest.raises(RequestError, match="2 processes were started, and on meta accelerate joins 1"):
        processes()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_SIZE is 4: mpirun started several"),
        ("ACCELERATE_USE_FSDP", "true", "ACCELERATE_USE_FSDP is set, and every process trains whole models"),
        ("ACCELERATE_USE_CPU", "1", "ACCELERATE_USE_CPU is set where a GPU can be seen"),
    ],
)
def test_launches_that_would_go_wrong_are_refused(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    with pytest.raises(RequestError, match=said):
        processes()


def test_a_device_that_the_user_chose_is_refused(
    follower: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = tmp_path / "pair.yaml"
    path.write_text("models: {target: {source: x, device: 'cuda:0'}}\ndrafters: {d: {use: sps, layers: 1}}\n", "utf-8")
    with pytest.raises(ModelError, match="device is 'cuda:0', but each of several processes runs on its own cpu"):
        open_pair(str(path), ())


@pytest.mark.slow
def test_gradients_are_means_over_processes(tmp_path: Path) -> None:
    """Two that take a batch each learn what one learns from batches of twice the size."""
    found, env = [], {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    for size, count in ((1, 2), (2, 1)):
        out = tmp_path / str(count)
        out.mkdir()
        script = tmp_path / "learns.py"
        script.write_text(LEARNS, "utf-8")
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(count), str(script)]
        ran = subprocess.run(
            [*launch, str(out), str(size)], check=False, capture_output=True, text=True, timeout=120, env=env
        )
        assert ran.returncode == 0, ran.stderr
        found += [json.loads((out / f"{rank}.json").read_text("utf-8")) for rank in range(count)]
    assert found[0] == found[1] == pytest.approx(found[2], abs=1e-12) and all(found[0])
