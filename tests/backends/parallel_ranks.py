"""What one of several processes does in test_parallel.py, which runs this file in each of them.

`play` is also what one process alone does with the same model, for comparison.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any

from draftmux.backends.parallel.wrap import wrap
from draftmux.drafting import SequenceDrafter
from draftmux.errors import ModelError
from draftmux.generation import Generation
from draftmux.protocols import BoundBackend, Row
from draftmux.testing.drafters import TreeOracle
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.types import Draft, Tap

TAPS = tuple(map(Tap.parse, ("0.attn_out", "1.resid_mid", "0.mlp_out", "-1.resid_post")))
LONG = 1100  # more tokens than a packet holds, and than one prefill pass takes
ASKS = [
    Ask(
        tuple((i * 7 + j * j) % 40 for j in range(LONG if i == 3 else 1 + 3 * i)),
        Generation(max_new_tokens=6 + 3 * i, temperature=0.9 * (i % 2), seed=i, logprobs=True),
        f"ask-{i}",
    )
    for i in range(4)
]


class Failing(SequenceDrafter):
    """Fails at its second call."""

    calls = 0

    def propose_one(self, context: Any, state: Any, budget: Any) -> Draft:
        self.calls += 1
        if self.calls == 2:
            raise ValueError("this drafter fails")
        return Draft.chain([1, 2])


def play(target: BoundBackend) -> dict[str, Any]:
    """Texts of a batch that joins and leaves, decoded plainly and with trees; then logits and taps of single passes."""
    found: dict[str, Any] = {"plain": _texts(target, {})}
    truths = [[*ask.tokens, *tokens] for ask, (tokens, _) in zip(ASKS, found["plain"], strict=True)]
    found["oracle"] = _texts(target, {"oracle": TreeOracle(truths, target.vocab_size, k=5)})
    failed = serve(assemble(target, {"failing": Failing()}), ASKS[:1])
    found["fault"] = str(failed["ask-0"].error).splitlines()[0]
    found["costs"] = target.cost(3) > 0
    found["passes"] = _passes(target)
    return found


def _texts(target: BoundBackend, drafters: dict[str, Any]) -> list[Any]:
    outcomes = serve(assemble(target, drafters), ASKS, max_batch=2)
    return [(o.finished.tokens, o.finished.logprobs) for o in outcomes.values()]


def _passes(target: BoundBackend) -> list[Any]:
    first, second = target.open([1, 2, 3, 4]), target.open([9, 8])
    draft = Draft([5, 6, 7, 8], [-1, -1, 1, 2])
    scores = target.score([Row(first.sequence, 4, draft), Row(second.sequence, 8, Draft.empty())])
    target.commit(first.sequence, [1, 2])
    target.close(second.sequence)
    scores += target.score([Row(first.sequence, 3, draft)])
    target.close(first.sequence)
    taps = [first.taps, *(score.taps for score in scores)]
    return [[s.logits.tolist() for s in scores], [[t[tap].tolist() for tap in TAPS] for t in taps]]


def build(folder: str, processes: int, self_check: bool = True) -> Any:
    """The target, or this process's shard of it."""
    from draftmux.backends.transformers.backend import TransformersBackend
    from draftmux.models.load import load_model
    from draftmux.models.source import ModelSpec

    model, eos_ids = load_model(ModelSpec(source=folder, dtype="float64"), processes)
    return TransformersBackend(self_check=self_check).over(model, eos_ids, taps=TAPS)


class Faulty:
    """A target whose passes fail, but for the first."""

    def __init__(self, target: Any) -> None:
        self.target, self.passes = target, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def score(self, rows: Any) -> Any:
        self.passes += 1
        if self.passes > 1:
            raise MemoryError("no room on this device")
        return self.target.score(rows)


def main(scenario: str, folder: str) -> None:
    """Both ranks start here; the follower ends in `wrap`."""
    rank = os.environ["RANK"]

    def make(processes: int) -> Any:
        if scenario == f"load {rank}":
            raise MemoryError("no room for the weights")
        target = build(folder, processes, scenario == "play")
        return Faulty(target) if scenario == f"fault {rank}" else target

    target = wrap(make)
    print("rank 0 goes on")
    if scenario == "play":
        found = play(target)
        target.open([1, 2, 3])
        found["heads"] = target.target.cache.slot_layers[0].keys.shape[1]
        try:
            wrap(make)
        except ModelError as error:
            found["second"] = str(error)
        Path("found.json").write_text(json.dumps(found))
    elif scenario == "killed":
        os._exit(9)
    else:
        root = Row(target.open([1, 2, 3]).sequence, 3, Draft.empty())
        target.score([root])
        target.score([root])
        raise RuntimeError("this program fails")


def start(environment: dict[str, str], scenario: str, model: str, folder: str) -> None:
    """Become a process as torchrun starts it: its own environment and output, and hooks that run at its end."""
    os.environ.update(environment)
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{name}-{environment['RANK']}", os.O_WRONLY | os.O_CREAT), number)
    import torch

    torch.set_num_threads(1)
    try:
        main(scenario, model)
    finally:
        sys.stdout.flush()
        atexit._run_exitfuncs()  # a child of multiprocessing leaves without them


if __name__ == "__main__":
    start(*ARGUMENTS)  # type: ignore[name-defined]  # noqa: F821 (put there by runpy)
