"""The comparison with other programs, `docs/bench/peers.py`, with made-up peers in real processes."""

from __future__ import annotations

import ast
import importlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from draftmux.backends.scripted import ScriptedTarget
from draftmux.bench.contenders import LineUp, Output
from draftmux.bench.conversation import Prompt
from draftmux.bench.run import Measured, Plan, Trial, Unit, measure
from draftmux.bench.suites import Row, Suite
from draftmux.errors import RequestError
from draftmux.generation import Generation

FOLDER = Path(__file__).parents[2] / "docs" / "bench"
SETUP = {"kind": "flashspec", "options": {}, "threads": 1}
ECHO = "return lambda request: request['prompt'][: request['max_new_tokens']]"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a script by its name."""
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """The worker's script, with a made-up `flashspec` of which `body` sets up the generation."""

    def make(body: str) -> Path:
        path = tmp_path / "worker.py"
        path.write_text(
            f"import os, sys\nsys.path.insert(0, {str(FOLDER)!r})\nimport peer_workers\n\n"
            f"def peer(setup):\n    {body}\n\n"
            "peer_workers.KINDS['flashspec'] = (peer, ('pip',))\npeer_workers.main()\n"
        )
        return path

    return make


@pytest.fixture
def peer(scripts: Callable[[str], ModuleType]) -> Any:
    return scripts("peer_client").Peer.parse(f"flashspec={sys.executable}")


def test_a_peer_is_its_kind_its_options_and_an_interpreter(scripts: Callable[[str], ModuleType]) -> None:
    parse = scripts("peer_client").Peer.parse
    made = parse("llama.cpp:weights=bf16,lookup=10,flash_attn=true=/a/python")
    assert (made.kind, made.python) == ("llama.cpp", "/a/python")
    assert made.options == {"weights": "bf16", "lookup": 10, "flash_attn": True}
    assert made.name == "llama.cpp:weights=bf16,lookup=10,flash_attn=true"
    assert parse("economize=py").options == {}
    assert parse("transformers=py").name != "transformers"  # which is the one that runs here


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("economize", "write KIND"),
        ("economize=", "write KIND"),
        ("=python", "write KIND"),
        ("economize:cycle=python", "write KIND"),
        ("economise=python", "did you mean 'economize'"),
    ],
)
def test_what_is_no_peer_is_refused(scripts: Callable[[str], ModuleType], text: str, part: str) -> None:
    with pytest.raises(RequestError, match=part):
        scripts("peer_client").Peer.parse(text)


def test_a_peer_is_given_once_and_nobody_samples(scripts: Callable[[str], ModuleType]) -> None:
    peers = scripts("peers")
    assert [peer.name for peer in peers.parse_peers(["economize=a", "economize:cycle=8=a"])] == [
        "economize",
        "economize:cycle=8",
    ]
    with pytest.raises(RequestError, match="'economize' is given 2 times"):
        peers.parse_peers(["economize=a", "economize=b"])
    with pytest.raises(RequestError, match="greedy"):
        peers.read_specs(["pld"], ["generation.temperature=1"])


def test_both_sides_know_the_same_peers_and_the_far_one_only_the_standard_library(
    scripts: Callable[[str], ModuleType],
) -> None:
    workers = scripts("peer_workers")
    assert set(workers.KINDS) == set(scripts("peer_client").KINDS)
    tops = ast.parse(Path(str(workers.__file__)).read_text()).body
    names = {alias.name for node in tops if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in tops if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_an_answer_ends_with_its_end_token_or_at_the_limit(scripts: Callable[[str], ModuleType]) -> None:
    until = scripts("peer_workers")._until
    assert until(iter([5, 6, 2, 7]), [2, 3], 9) == [5, 6, 2]
    assert until(iter([5, 6, 2, 7]), [9], 2) == [5, 6]
    assert until(iter([]), [9], 2) == []


def test_a_worker_answers_and_what_its_peer_prints_is_no_answer(
    scripts: Callable[[str], ModuleType], script: Callable[[str], Path], peer: Any
) -> None:
    noisy = script(f"print('loading…'); os.system('echo from below'); {ECHO}")
    with scripts("peer_client").working(peer, SETUP, noisy) as worker:
        assert set(worker.versions) == {"pip"}
        answer = worker.ask({"prompt": [4, 5, 6], "max_new_tokens": 2, "eos": [2]})
        assert answer["tokens"] == [4, 5]
        assert answer["seconds"] > 0
    assert worker.process.returncode is not None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import surely_not_there", "No module named 'surely_not_there'"),
        ("os._exit(3)", "exit code 3"),
        ("print('out of memory'); os._exit(1)", "out of memory"),
        ("raise ValueError('gamma 0')", "ValueError: gamma 0"),
    ],
)
def test_a_peer_that_does_not_load_is_told_of(
    scripts: Callable[[str], ModuleType], script: Callable[[str], Path], peer: Any, body: str, told: str
) -> None:
    client = scripts("peer_client")
    body = body.replace("print('out of memory')", "os.write(2, b'out of memory')")
    with pytest.raises(client.WorkerError, match=told), client.working(peer, SETUP, script(body)):
        pass


def test_an_interpreter_that_is_not_there_is_told_of(scripts: Callable[[str], ModuleType]) -> None:
    client = scripts("peer_client")
    nowhere = client.Peer.parse("economize=/nowhere/python")
    with pytest.raises(client.WorkerError, match=r"economize: there is no interpreter '/nowhere/python'"):
        client.working(nowhere, SETUP).__enter__()


@pytest.mark.parametrize("failure", ["raise MemoryError('full')", "os._exit(4)"])
def test_everyone_runs_each_prompt_before_the_next_and_a_peer_that_fails_stops_nobody(
    scripts: Callable[[str], ModuleType],
    script: Callable[[str], Path],
    peer: Any,
    fake: Any,
    tokenizer: Any,
    failure: str,
) -> None:
    client, peers = scripts("peer_client"), scripts("peers")
    log: list[Any] = []
    own = [fake(name, log) for name in ("plain", "transformers")]
    path = script(f"return lambda r: r['prompt'] if r['prompt'] != [5] else failing()\n\ndef failing():\n    {failure}")
    suite = Suite("s", tuple(Row(f"p{i}", "", (f"w{i}",)) for i in (3, 4, 5, 6)))
    target = ScriptedTarget(lambda prefix: [0.0] * 40, 40, tokenizer=tokenizer)
    with client.working(peer, SETUP, path) as worker:
        other = client.PeerContender(worker, [2])
        measured = measure(LineUp((*own, other), target, Generation(max_new_tokens=8)), suite, Plan(warmup=0))
    assert [unit.prompts[0].name for unit in measured.units] == ["p3", "p4", "p5", "p6"]
    assert [prompts for _, prompts in log] == [((i,),) for i in (3, 4, 5, 6) for _ in own]
    assert [unit.trials["flashspec"][0].outputs[0].tokens for unit in measured.units] == [(3,), (4,), (), ()]
    assert other.fault is not None
    lines = peers.figures(measured.units, {"transformers": "bf16", "plain": "bf16"}, 0)
    assert [line.identical for line in lines] == [4, 4]
    assert f"left out: {other.fault}" in peers.notes(measured, [other], lines)


def test_figures_by_hand(scripts: Callable[[str], ModuleType]) -> None:
    peers = scripts("peers")

    def trial(tokens: tuple[int, ...], seconds: float) -> list[Trial]:
        return [Trial((Output(tokens, "", seconds - 0.002),), seconds)]

    units = [
        Unit(
            (Prompt("a", "", (1, 2)),),
            {"transformers": trial((7, 8), 1.0), "x": trial((7, 8), 0.5), "y": trial((7,), 1.0)},
        ),
        Unit(
            (Prompt("b", "", (3,)),),
            {"transformers": trial((7, 8), 1.0), "x": trial((7, 9), 0.5), "y": trial((8,), 1.0)},
        ),
    ]
    base, same, other = peers.figures(units, {"transformers": "bf16", "x": "bf16", "y": "q4_1"}, 0)
    assert (base.tokens_per_second, base.ratio, base.identical) == (2.0, 1.0, 2)
    assert (same.tokens_per_second, same.ratio, same.interval, same.identical) == (4.0, 2.0, (2.0, 2.0), 1)
    assert (other.tokens_per_second, other.ratio, other.identical) == (1.0, 0.5, None)
    assert [prompt["prompt_tokens"] for prompt in same.prompts] == [2, 1]

    shown = io.StringIO()
    Console(file=shown, width=100).print(peers.make_table([base, same, other], "2 prompts"))
    rows = {cells[0]: cells[1:] for line in shown.getvalue().splitlines() if len(cells := line.split()) > 4}
    assert rows["transformers"] == ["bf16", "2.0", "1.00x", "-", "2/2"]
    assert rows["x"] == ["bf16", "4.0", "2.00x", "[2.00,", "2.00]", "1/2"]
    assert rows["y"] == ["q4_1", "1.0", "0.50x", "[0.50,", "0.50]", "-"]

    client = scripts("peer_client")
    contender = client.PeerContender(client.Worker(client.Peer.parse("flashspec=py"), None, None), [2])
    contender.worker.peer = client.Peer("x", "flashspec", {}, "py")
    told = peers.notes(Measured(units, ["c is too long"], "interrupted"), [contender], [base, same, other])
    assert told[:2] == ["skipped: c is too long", "partial: interrupted"]
    assert "at most 2.0 ms a prompt" in told[2]


def test_a_repacked_gguf_holds_the_same_weights_and_metadata(
    scripts: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

    setups = scripts("peer_setups")
    kind = GGMLQuantizationType.Q4_1
    matrix = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    writer = GGUFWriter(tmp_path / "own.gguf", "llama")
    writer.add_file_type(3)
    writer.add_token_list(["a", "ü"])
    writer.add_tensor("blk.0.attn_q.weight", quantize(matrix, kind), raw_dtype=kind)
    writer.add_tensor("norm.weight", np.linspace(0, 1, 8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unpacked = dequantize(quantize(matrix, kind), kind)

    assert setups.linear_format(tmp_path / "own.gguf") == "q4_1"
    for form, error in (("f32", 0), ("bf16", 2**-8), ("f16", 2**-11), ("q8_0", 1 / 250)):
        path = setups.repack(tmp_path / "own.gguf", tmp_path / f"{form}.gguf", form)
        assert setups.linear_format(path) == form
        reader = GGUFReader(path)
        square, vector = reader.tensors
        gap = np.abs(dequantize(square.data, square.tensor_type) - unpacked).max()
        assert gap <= error * np.abs(unpacked).max()
        assert vector.tensor_type.name == "F32"
        assert vector.data.tolist() == np.linspace(0, 1, 8, dtype=np.float32).tolist()
        assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "ü"]
        assert reader.fields["general.file_type"].contents() == int(setups.FILE_TYPES[form])
    with pytest.raises(RequestError, match="'q3' are not known"):
        setups.repack(tmp_path / "own.gguf", tmp_path / "q3.gguf", "q3")
