"""How calls travel to other ranks, what a follower makes of them, and what is refused, all in one process."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, LlamaConfig, MixtralConfig

from draftmux.backends.parallel.follower import Handles, make
from draftmux.backends.parallel.group import Group
from draftmux.backends.parallel.leader import Leader
from draftmux.backends.parallel.ranks import Ranks, one_voice
from draftmux.backends.parallel.wire import Close, Commit, Cost, Open, Score, Stop, decode, encode
from draftmux.backends.parallel.wrap import refuse_several
from draftmux.errors import ModelError
from draftmux.generation import Generation
from draftmux.models.shards import refuse_device, shards
from draftmux.models.source import ModelSpec
from draftmux.protocols import Row
from draftmux.testing.drafters import RandomTree
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.strategies import draft_trees
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Draft

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from draftmux.backends.scripted import ScriptedTarget

PLACE = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, Ranks(1, 4, 1, 2)),
        ({"LOCAL_WORLD_SIZE": "4"}, Ranks(1, 4, 1, 4)),
        ({"WORLD_SIZE": "1"}, None),
        ({"WORLD_SIZE": None}, None),
        ({"RANK": None}, None),
    ],
)
def test_ranks_come_from_the_launcher(changed: dict[str, str | None], expected: Ranks | None) -> None:
    assert Ranks.read({k: v for k, v in (PLACE | changed).items() if v is not None}) == expected


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"LOCAL_RANK": None}, "LOCAL_RANK is not set; start all processes with torchrun"),
        ({"RANK": "one"}, "not numbers"),
        ({"RANK": "4"}, "RANK is 4, which is not 0 to 3"),
    ],
)
def test_half_a_launch_is_refused(changed: dict[str, str | None], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Ranks.read({k: v for k, v in (PLACE | changed).items() if v is not None})


@pytest.mark.parametrize("code", [0, 2])
def test_a_follower_says_nothing_and_gives_rank_0_time_to(
    follower: list[float], capfd: pytest.CaptureFixture[str], code: int
) -> None:
    before = sys.stdin, sys.stdout, sys.stderr
    with pytest.raises(SystemExit), one_voice():
        print("to output")
        print("to errors", file=sys.stderr)
        assert sys.stdin.read() == ""
        sys.exit(code)
    assert (sys.stdin, sys.stdout, sys.stderr) == before
    assert capfd.readouterr() == ("", "")
    assert bool(follower) == bool(code)


def test_a_backend_for_one_process(follower: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="the static backend runs in one process, and 2 were started"):
        refuse_several("static")
    monkeypatch.delenv("RANK")
    refuse_several("static")


def test_more_processes_than_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 1)
    with pytest.raises(ModelError, match=r"2 processes .* 1 cuda device\(s\) are visible.*--nproc-per-node 1"):
        Group.join(Ranks(0, 2, 0, 2))


def test_a_plan_needs_sizes_that_divide() -> None:
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 24, "vocab_size": 7}
    config = LlamaConfig(**sizes, intermediate_size=7)
    assert shards(config, "tiny", 2).tp_size == 2  # the vocabulary and the MLP may be uneven
    with pytest.raises(ModelError, match="num_key_value_heads 2, which 3 processes cannot share evenly"):
        shards(config, "tiny", 3)
    with pytest.raises(ModelError, match="no tensor parallel plan for the architecture 'gpt2'"):
        shards(GPT2Config(), "tiny", 2)
    mixture = MixtralConfig(num_attention_heads=6, num_key_value_heads=3, intermediate_size=7)
    with pytest.raises(ModelError, match="intermediate_size 7, which 3"):
        shards(mixture, "tiny", 3)


def test_the_device_is_the_launchers_choice() -> None:
    refuse_device(ModelSpec(source="x"), "cpu")
    refuse_device(ModelSpec(source="x", device="cpu"), "cpu")
    with pytest.raises(ModelError, match="device is 'cuda:1', but each of several processes"):
        refuse_device(ModelSpec(source="x", device="cuda:1"), "cuda")


IDS = st.integers(0, 1 << 40)
ROWS = st.lists(st.builds(Row, IDS, IDS, draft_trees(1 << 20)), max_size=5).map(tuple)
CALLS = st.one_of(
    st.builds(Open, IDS, st.lists(IDS, max_size=9)),
    st.builds(Score, ROWS),
    st.builds(Commit, IDS, st.lists(IDS, max_size=9)),
    st.builds(Close, IDS),
    st.builds(Cost, IDS),
    st.builds(Stop),
)


def _plain(call: Any) -> Any:
    """As something with an equality."""
    if not isinstance(call, Score):
        return call
    return [(r.sequence, r.root, r.draft.tokens.tolist(), r.draft.parents.tolist()) for r in call.rows]


@given(st.lists(CALLS, max_size=5))
def test_calls_arrive_as_they_were_sent(calls: list[Any]) -> None:
    message = encode(calls)
    assert message.dtype == np.int64 and message.ndim == 1
    assert [_plain(call) for call in decode(message)] == [_plain(call) for call in calls]


@frozen(eq=False)
class Wire:
    """A group in one process: what is sent arrives at a second target."""

    follower: ScriptedTarget
    ranks: Ranks = Ranks(0, 2, 0, 2)
    handles: Handles = field(factory=dict)
    sent: list[Any] = field(factory=list)

    def send(self, message: NDArray[np.int64]) -> None:
        for call in decode(message):
            self.sent.append(call)
            make(call, self.follower, self.handles)

    def note(self, error: BaseException) -> None:
        self.sent.append(error)


@given(st.integers(0, 99), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 3))
def test_a_follower_does_what_rank_0_does(seed: int, lengths: list[int], max_batch: int) -> None:
    asked: list[list[tuple[int, ...]]] = [[], []]

    def spied(of: int) -> ScriptedTarget:
        law = hash_law(seed, 12)
        return scripted(lambda prefix: (asked[of].append(prefix), law(prefix))[1], 12)

    own, follower = spied(0), spied(1)
    wire = Wire(follower)
    leader = Leader(own, wire)  # type: ignore[arg-type]
    asks = [Ask((1,) * n, Generation(max_new_tokens=n + 2), f"ask-{n}-{i}") for i, n in enumerate(lengths)]
    serve(assemble(leader, {"random": RandomTree(12, seed=seed)}), asks, max_batch)
    assert own.open_sequences == 0
    leader.cost(3)  # what was left to tell travels along
    assert asked[0] == asked[1] and own.passes == follower.passes
    assert follower.open_sequences == 0 and not wire.handles
    assert sum(isinstance(call, Score) for call in wire.sent) == own.passes


def test_a_fault_ends_the_work_of_all_ranks() -> None:
    own, follower = (scripted(hash_law(1, 12), 12) for _ in range(2))
    wire = Wire(follower)
    leader = Leader(own, wire)  # type: ignore[arg-type]
    sequence = leader.open((1, 2)).sequence
    with pytest.raises(ModelError, match=r"rank 0 of 2: commit without a scored draft.*start them again"):
        leader.commit(sequence, ())
    assert isinstance(wire.sent[-1], ModelError)
    with pytest.raises(ModelError, match="start them again"):
        leader.open((1,))
    leader.close(sequence)
    leader.end()  # nobody may be there to listen
    assert isinstance(wire.sent[-1], ModelError)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Also where the tests were started in the background, and ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_for_the_end_of_a_pass() -> None:
    law, interrupts = hash_law(1, 12), [0, 2]  # a launcher sends a second one

    def interrupted(prefix: tuple[int, ...]) -> Any:
        for _ in range(interrupts.pop()):
            signal.raise_signal(signal.SIGINT)
        interrupts.append(0)
        return law(prefix)

    own, follower = scripted(interrupted, 12), scripted(law, 12)
    leader = Leader(own, Wire(follower))  # type: ignore[arg-type]
    row = Row(leader.open((1, 2)).sequence, 2, Draft.chain([3, 4]))
    with pytest.raises(KeyboardInterrupt):
        leader.score([row])
    assert own.passes == follower.passes == 1
    leader.score([row])
    assert own.passes == follower.passes == 2
