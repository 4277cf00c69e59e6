"""A target that two processes share gives what one process gives, and no fault of either leaves the other waiting."""

from __future__ import annotations

import json
import multiprocessing
import runpy
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from attrs import frozen
from click.testing import CliRunner
from filelock import FileLock
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from draftmux.cli.main import main
from draftmux.testing.targets import tiny_model

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("parallel_ranks.py")
ALONE = runpy.run_path(str(SCRIPT))
PRELOAD = [
    "draftmux.backends.transformers.runner",
    "draftmux.backends.target",
    "draftmux.models.load",
    "draftmux.testing.harness",
    "torch.distributed.tensor",
    "transformers.distributed.mixin",
    "transformers.models.gemma3.modeling_gemma3",
    "transformers.models.llama.modeling_llama",
]
WAIT = 60.0  # seconds; what hangs, hangs longer
NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
)


@frozen
class Ended:
    """How both processes ended."""

    codes: tuple[int | None, ...]
    out: tuple[str, ...]
    err: tuple[str, ...]
    found: Any = None


@pytest.fixture(scope="module")
def server() -> Any:
    """Starts processes that have imported everything; two of them take seconds otherwise, each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No other group of processes runs meanwhile, in no worker of pytest-xdist."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "ranks.lock"):
        yield


@pytest.fixture
def ranks(server: Any, alone: None, tmp_path: Path) -> Any:
    """Run a scenario of parallel_ranks.py in two processes."""

    def run(scenario: str, model: Path) -> Ended:
        folder = tmp_path / "ranks"
        folder.mkdir()
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # torchrun keeps it as well
        processes = []
        for rank in ("0", "1"):
            environment = dict(zip(NAMES, (rank, "2", rank, "2", "127.0.0.1", str(store.port), "True"), strict=True))
            arguments = (environment, scenario, str(model), str(folder))
            how = {"init_globals": {"ARGUMENTS": arguments}, "run_name": "__main__"}
            processes.append(server.Process(target=runpy.run_path, args=(str(SCRIPT),), kwargs=how))
        return _ended(processes, folder)

    return run


def _ended(processes: list[Any], folder: Path) -> Ended:
    until = time.monotonic() + WAIT
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    codes = tuple(process.exitcode for process in processes)
    for process in processes:
        process.kill()
        process.join()
    texts = {name: tuple((folder / f"{name}-{rank}").read_text() for rank in (0, 1)) for name in ("out", "err")}
    found = folder / "found.json"
    return Ended(codes, texts["out"], texts["err"], json.loads(found.read_text()) if found.exists() else None)


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """A folder with a tiny model."""

    def save(name: str) -> Path:
        from draftmux.models.checkpoint import quietly

        folder = tmp_path / name
        with quietly():
            tiny_model(name, 2048).save_pretrained(folder)
        return folder

    return save


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_two_processes_give_what_one_gives(ranks: Any, saved: Any, name: str) -> None:
    model = saved(name)
    ended = ranks("play", model)
    assert ended.codes == (0, 0), ended.err
    assert ended.out == ("rank 0 goes on\n", "") and "Error" not in ended.err[1]
    alone = json.loads(json.dumps(ALONE["play"](ALONE["build"](str(model), 1))))
    for key in ("plain", "oracle"):
        for (tokens, logprobs), (own_tokens, own_logprobs) in zip(ended.found[key], alone[key], strict=True):
            assert tokens == own_tokens
            np.testing.assert_allclose(logprobs, own_logprobs, atol=1e-9)
    assert ended.found["fault"] == alone["fault"] and "failing" in alone["fault"]
    assert ended.found["costs"]
    assert ended.found["heads"] == 1  # of two: rank 0 holds half of the keys and values
    assert "in use already" in ended.found["second"]
    _check_passes(ended.found["passes"], alone["passes"])


def _check_passes(found: Any, alone: Any) -> None:
    """Rank 0 holds whole rows of logits, and hidden states after the sum over ranks."""
    for ours, theirs in zip(chain(found[0], *found[1]), chain(alone[0], *alone[1]), strict=True):
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert {np.shape(logits)[-1] for logits in found[0]} == {40}
    assert {np.shape(states)[-1] for taps in found[1] for states in taps} == {32}


def test_rank_0_fails_while_sequences_are_open(ranks: Any, saved: Any) -> None:
    ended = ranks("exit", saved("llama"))
    assert ended.codes == (1, 0)
    assert "this program fails" in ended.err[0] and "Error" not in ended.err[1]


def test_rank_0_is_killed(ranks: Any, saved: Any) -> None:
    ended = ranks("killed", saved("llama"))
    assert ended.codes == (9, 1)
    assert "Error: rank 1 of 2: " in ended.err[1] and ended.err[1].endswith("all ranks end\n")


def test_a_pass_fails_on_a_follower(ranks: Any, saved: Any) -> None:
    ended = ranks("fault 1", saved("llama"))
    assert ended.codes == (1, 1)
    assert "Error: rank 1 of 2: no room on this device; all ranks end\n" in ended.err[1]
    assert "ModelError: a call of the target failed on rank 0 of 2" in ended.err[0]


def test_a_pass_fails_on_rank_0(ranks: Any, saved: Any) -> None:
    ended = ranks("fault 0", saved("llama"))
    assert ended.codes == (1, 1)
    assert "failed on rank 0 of 2: no room on this device. The others may wait" in ended.err[0]
    assert "Error" not in ended.err[1]  # rank 0 speaks for both


def test_loading_fails_on_a_follower(ranks: Any, saved: Any) -> None:
    ended = ranks("load 1", saved("llama"))
    assert ended.codes == (1, 1)
    assert "Error: rank 1 of 2: no room for the weights; all ranks end\n" in ended.err[1]


def test_an_architecture_without_a_plan(ranks: Any, saved: Any) -> None:
    ended = ranks("play", saved("gpt2"))
    assert ended.codes == (1, 1)
    assert "no tensor parallel plan for the architecture 'gpt2'" in ended.err[0]
    assert "Error" not in ended.err[1]


@pytest.fixture
def pipeline(saved: Any, tmp_path: Path) -> str:
    """A pipeline file over a tiny model with a tokenizer whose words are t0, t1, …"""
    from draftmux.models.checkpoint import quietly

    model = saved("llama")
    words = Tokenizer(WordLevel({f"t{i}": i for i in range(40)}, unk_token="t0"))
    words.pre_tokenizer = WhitespaceSplit()
    with quietly():
        PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(model)
    path = tmp_path / "two.yaml"
    path.write_text(
        f"models: {{target: {{source: '{model}', dtype: float64}}}}\ndrafters: {{copy: {{use: pld}}}}\n"
        "generation: {max_new_tokens: 20}\n"
    )
    return str(path)


def test_the_command_line_under_torchrun(pipeline: str, alone: None, tmp_path: Path) -> None:
    arguments = ["run", pipeline, "--prompt", "t1 t2 t3 t1 t2", "-", "--json"]
    single = CliRunner().invoke(main, arguments, input="t9 t8", catch_exceptions=False)
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "draftmux",
    ]
    done = subprocess.run(
        [*launcher, *arguments], input=b"t9 t8", capture_output=True, cwd=tmp_path, timeout=2 * WAIT, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    texts = [[json.loads(line)["tokens"] for line in out.splitlines()] for out in (single.stdout, done.stdout.decode())]
    assert texts[0] == texts[1] and len(texts[0]) == 2
