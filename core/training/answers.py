"""The target's own answers to prompts, with its hidden states, kept on disk shard by shard.

The engine generates them, many sequences at once, and a drafter that never drafts keeps what it is told of every step.
A shard is a safetensors file of some samples; a run that was stopped goes on after the last whole one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from attrs import define, evolve, field, frozen
from safetensors import safe_open
from safetensors.torch import save_file

from draftmux.engine.scheduler import Scheduler
from draftmux.engine.step import Parts
from draftmux.errors import DraftmuxError
from draftmux.prompts import encode
from draftmux.routers.fixed import Fixed
from draftmux.types import Draft, Emits, Needs, Tap
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from draftmux.generation import Generation
    from draftmux.protocols import BoundBackend, DraftRequest, Resources
    from draftmux.training.prompts import Prompt
    from draftmux.types import Context, Step

SAMPLES = 32  # a shard
CHUNK = 16  # batches of prompts that are put in order of length: a run that is stopped has some of all lengths


@frozen(eq=False)
class Sample:
    """A prompt and its answer: `ids (L,)`, and `states (L-1, taps * d)` of all positions but the last."""

    key: str
    ids: Tensor
    states: Tensor
    prompt_length: int

    def of(self, columns: Sequence[int], taps: int) -> Sample:
        """The same with the states of some of its `taps` taps only, in that order."""
        if list(columns) == list(range(taps)):
            return self
        parts, first = self.states.tensor_split(taps, -1), columns[0]
        if list(columns) == list(range(first, first + len(columns))):  # a view: what is mapped from a file stays there
            width = parts[0].shape[1]
            return evolve(self, states=self.states[:, first * width : (first + len(columns)) * width])
        return evolve(self, states=torch.cat([parts[column] for column in columns], -1))


@define(eq=False)
class Harvest:
    """A drafter that drafts nothing and keeps the tapped states of every step, by request."""

    taps: tuple[Tap, ...]
    states: dict[str, list[Tensor]] = field(factory=dict)
    emits: Emits = Emits()

    @property
    def needs(self) -> Needs:
        """The states to keep."""
        return Needs(taps=self.taps)

    def uses(self) -> tuple[str, ...]:
        """No other drafter."""
        return ()

    def bind(self, resources: Resources) -> Harvest:
        """Nothing to load."""
        return self

    def begin(self, context: Context) -> list[Tensor]:
        """The prompt's states."""
        self.states[context.request_id] = [self._joined(context.taps, len(context.tokens) - 1)]
        return self.states[context.request_id]

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Nothing."""
        return [Draft.empty()] * len(requests)

    def observe(self, state: list[Tensor], step: Step) -> None:
        """Keep the committed rows."""
        state.append(self._joined(step.taps, len(step.committed)))

    def _joined(self, taps: Mapping[Tap, Tensor], rows: int) -> Tensor:
        if not self.taps:
            return torch.zeros(rows, 0)
        return torch.cat([taps[tap] for tap in self.taps], -1).cpu()


def answer(
    backend: BoundBackend,
    taps: tuple[Tap, ...],
    prompts: Sequence[Prompt],
    how: Callable[[Prompt], Generation],
    batch: int,
) -> Iterator[Sample]:
    """Samples as they end. A prompt that the target cannot take (too long, for one) is left out."""
    harvest = Harvest(taps)
    scheduler = Scheduler(
        Parts(backend, {"harvest": harvest}, Fixed(drafter="harvest"), ExactMatch()),
        backend.tokenizer,
        max_batch=batch,
    )
    ids: dict[str, tuple[int, ...]] = {}
    for at in range(0, len(prompts), CHUNK * batch):
        fitting: list[tuple[str, Generation]] = []
        for prompt in prompts[at : at + CHUNK * batch]:
            with suppress(DraftmuxError):
                ids[prompt.key] = tuple(encode(list(prompt.messages), backend.tokenizer, how(prompt)))
                fitting.append((prompt.key, how(prompt)))
        # By length: sequences that are passed together are padded to the longest.
        for key, own in sorted(fitting, key=lambda each: len(ids[each[0]])):
            with suppress(DraftmuxError):
                scheduler.submit(ids[key], own, key)
    for delta in scheduler.run():
        if delta.result is not None or delta.error is not None:
            states = harvest.states.pop(delta.request_id, [])
        if delta.result is not None:
            tokens = (*ids[delta.request_id], *delta.result.tokens)
            found = torch.cat(states)
            yield Sample(delta.request_id, torch.tensor(tokens), found, len(ids[delta.request_id]))


def answer_to_disk(folder: Path, samples: Iterator[Sample]) -> Iterator[int]:
    """Write samples, shard by shard; yields how many there are of these after each."""
    pending: list[Sample] = []
    for count, sample in enumerate(samples, 1):
        pending.append(sample)
        if len(pending) == SAMPLES:
            _write(folder, pending)
            pending = []
            yield count
    if pending:
        _write(folder, pending)
        yield count


def answered(folder: Path, prompts: Iterable[Prompt]) -> set[str]:
    """Keys of the prompts that have their answers there."""
    return {prompt.key for prompt in prompts} & {key for path in shards(folder) for key in _keys(path)}


def shards(folder: Path) -> list[Path]:
    """Whole shards, in the order in which they were written."""
    return sorted(folder.glob("shard-*.safetensors"))


def _write(folder: Path, samples: Sequence[Sample]) -> None:
    path = folder / f"shard-{len(shards(folder)):05}.safetensors"
    tensors = {
        "ids": torch.cat([sample.ids for sample in samples]).to(torch.int32),
        "states": torch.cat([sample.states for sample in samples]),
        "lengths": torch.tensor([len(sample.ids) for sample in samples]),
        "prompt_lengths": torch.tensor([sample.prompt_length for sample in samples]),
    }
    part = path.with_suffix(".partial")
    save_file(tensors, part, {"keys": json.dumps([sample.key for sample in samples])})
    part.replace(path)


def _keys(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(json.loads(file.metadata()["keys"]))


def read_samples(path: Path) -> list[Sample]:
    """The samples of a shard; states are mapped from the file, not read."""
    with safe_open(path, "pt") as file:
        ids, states = file.get_tensor("ids").long(), file.get_tensor("states")
        lengths, prompts = file.get_tensor("lengths").tolist(), file.get_tensor("prompt_lengths").tolist()
        keys = json.loads(file.metadata()["keys"])
    found = zip(keys, ids.split(lengths), states.split([n - 1 for n in lengths]), prompts, strict=True)
    return [Sample(*each) for each in found]
