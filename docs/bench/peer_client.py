"""Other programs as contenders: how one is named, started in its own interpreter, asked, and ended.

Knows the messages of `peer_workers.py`; nothing of models, order and statistics.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, ClassVar

from attrs import define, field, frozen

from draftmux.bench.contenders import Output
from draftmux.errors import DraftmuxError, RequestError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from draftmux.generation import Generation

SCRIPT = Path(__file__).with_name("peer_workers.py")
KINDS = ("transformers", "flashspec", "economize", "llama.cpp")


class WorkerError(DraftmuxError):
    """A peer that does not start, answer, or do what it was asked."""


@frozen
class Peer:
    """One peer as the command line names it: `KIND[:KEY=VALUE,...]=PYTHON`. The name is all but the interpreter."""

    name: str
    kind: str
    options: dict[str, Any]
    python: str

    @classmethod
    def parse(cls, text: str) -> Peer:
        """RequestError when the text is not of that form, or no such peer is known."""
        name, equals, python = text.rpartition("=")
        kind, _, settings = name.partition(":")
        pairs = [pair.partition("=") for pair in settings.split(",") if pair]
        if not (equals and kind and python) or not all(key and value for key, _, value in pairs):
            raise RequestError(f"peer '{text}': write KIND[:KEY=VALUE,...]=PYTHON, as in llama.cpp:lookup=10=python3")
        if kind not in KINDS:
            raise RequestError(f"peer '{kind}' is none of {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
        # In this process transformers runs under its plain name already.
        shown = f"{name} (apart)" if kind == "transformers" else name
        return cls(shown, kind, {key: _value(value) for key, _, value in pairs}, python)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@define(eq=False)
class Worker:
    """A peer's process, loaded once; `versions` are those of the peer and what it stands on."""

    peer: Peer
    process: Popen[str]
    errors: IO[str]
    versions: Mapping[str, str] = field(factory=dict)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send one message and wait for its answer; WorkerError when the answer is an error, or none comes."""
        if self.process.stdin is None or self.process.stdout is None:
            raise WorkerError(f"{self.peer.name}: its process has no pipes")
        answer: dict[str, Any] = {}
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or "{}")
        except (OSError, ValueError):  # it has ended, or what came is no answer
            with suppress(OSError):
                self.process.stdin.close()
        if not answer:
            raise WorkerError(f"{self.peer.name}: its process gave no answer: {self._last_words()}")
        if "error" in answer:
            raise WorkerError(f"{self.peer.name} in {self.peer.python}: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        self.process.kill()
        code = self.process.wait()
        self.errors.seek(0)
        told = self.errors.read().strip().splitlines()
        return told[-1] if told else f"exit code {code}"


@contextmanager
def working(peer: Peer, setup: Mapping[str, Any], script: Path = SCRIPT) -> Iterator[Worker]:
    """A worker that has loaded the peer, until the context is left; WorkerError says why there is none."""
    python = shutil.which(os.path.expanduser(peer.python))
    if python is None:
        raise WorkerError(f"{peer.name}: there is no interpreter '{peer.python}'; make its environment first")
    environment = {**os.environ, "OMP_NUM_THREADS": str(setup["threads"]), "TOKENIZERS_PARALLELISM": "false"}
    with (
        TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        Popen(
            [python, "-P", str(script)],  # -P: the script's folder is none of the peer's business
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            encoding="utf-8",
            env=environment,
            start_new_session=True,  # an interrupt is for the driver, which then reports what it has
        ) as process,
    ):
        worker = Worker(peer, process, errors)
        try:
            worker.versions = worker.ask(setup)["versions"]
            yield worker
        finally:
            process.terminate()  # it holds nothing that would have to be saved


@define(eq=False)
class PeerContender:
    """A worker among the contenders. Once it has failed, it is asked no more, and `fault` says why."""

    worker: Worker
    eos: Sequence[int]
    fault: str | None = None
    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.worker.peer.name

    def generate(self, prompts: Sequence[tuple[int, ...]], generation: Generation) -> list[Output]:
        """Answers in order; empty ones after a failure, so that the other contenders' run goes on."""
        return [self._one(prompt, generation.max_new_tokens) for prompt in prompts]

    def _one(self, prompt: tuple[int, ...], length: int) -> Output:
        if self.fault is not None:
            return Output((), "", 0.0)
        try:
            answer = self.worker.ask({"prompt": prompt, "max_new_tokens": length, "eos": list(self.eos)})
        except WorkerError as error:
            self.fault = str(error)
            return Output((), "", 0.0)
        return Output(tuple(answer["tokens"]), "", answer["seconds"])
