"""The measurement: every prompt, every contender, one after the other in one process, in an order drawn anew each time.

So a machine that warms up, throttles or is shared slows all of them alike. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, evolve, field, frozen

from draftmux.bench.comparable import PLAIN
from draftmux.bench.conversation import Conversation, Prompt
from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from draftmux.bench.contenders import Contender, LineUp, Output
    from draftmux.bench.suites import Suite

    Tick = Callable[[int, str], None]

# Not from the suite: a drafter that remembers across requests must not have met an answer before it is measured.
WARMUP_TEXT = "List the numbers from one to twenty, then list them again."
WARMUP_TOKENS = 32


@frozen
class Plan:
    """How often and in what order. `batch` prompts run together; `seed` draws the orders."""

    warmup: int = 3
    repeat: int = 1
    batch: int = 1
    seed: int = 0


@frozen(eq=False)
class Trial:
    """One contender, once, on all prompts of a unit."""

    outputs: tuple[Output, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens generated in all."""
        return sum(len(output.tokens) for output in self.outputs)


@frozen(eq=False)
class Unit:
    """Prompts that ran together, and every contender's trials on them, one a repeat."""

    prompts: tuple[Prompt, ...]
    trials: Mapping[str, Sequence[Trial]]


@define(eq=False)
class Measured:
    """Units that every contender has finished. `stopped` says why there are no more, `error` what went wrong."""

    units: list[Unit] = field(factory=list)
    skipped: list[str] = field(factory=list)
    stopped: str | None = None
    error: Exception | None = None


def trial_count(line_up: LineUp, suite: Suite, plan: Plan) -> int:
    """Trials that `measure` will tick off, warm-up included."""
    groups = [suite.rows[i : i + plan.batch] for i in range(0, len(suite.rows), plan.batch)]
    turns = sum(max(len(row.turns) for row in group) for group in groups)
    return len(line_up.contenders) * (plan.warmup + plan.repeat * turns)


def measure(line_up: LineUp, suite: Suite, plan: Plan, tick: Tick = lambda done, what: None) -> Measured:
    """Run everything. An interrupt or a failing contender ends it early, keeping what all contenders have finished.

    `tick(trials done, what runs next)` is called before each trial.
    """
    measured = Measured()
    try:
        _Run(line_up, plan, tick, measured).everything(suite)
    except KeyboardInterrupt:
        measured.stopped = "interrupted"
    except Exception as error:  # hours of measuring must not be lost to one request; the caller raises it again
        measured.stopped, measured.error = str(error) or type(error).__name__, error
    return measured


@define(eq=False)
class _Run:
    line_up: LineUp
    plan: Plan
    tick: Tick
    measured: Measured
    done: int = 0
    order: np.random.Generator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.order = np.random.default_rng(self.plan.seed)

    def everything(self, suite: Suite) -> None:
        self._warm_up()
        for start in range(0, len(suite.rows), self.plan.batch):
            self._converse([Conversation(row) for row in suite.rows[start : start + self.plan.batch]])
        if not self.measured.units:
            raise RequestError("no prompt could be measured: " + "; ".join(self.measured.skipped))

    def _warm_up(self) -> None:
        tokenizer, limit = self.line_up.tokenizer, self.line_up.backend.max_length
        tokens = (0,) if tokenizer is None else tuple(tokenizer(WARMUP_TEXT)["input_ids"]) or (0,)
        prompt = Prompt("warm-up", "", tokens if limit is None else tokens[: max(1, limit - WARMUP_TOKENS)])
        short = min(WARMUP_TOKENS, self.line_up.generation.max_new_tokens)
        for _ in range(self.plan.warmup):
            for contender in self._shuffled():
                self._trial(contender, (prompt,) * self.plan.batch, max_new_tokens=short)

    def _converse(self, conversations: list[Conversation]) -> None:
        """Ask turn after turn until all of them have ended."""
        while asking := [conversation for conversation in conversations if conversation.open]:
            prompts = [c.prompt(self.line_up.tokenizer, self.line_up.generation) for c in asking]
            fitting = [(c, p) for c, p in zip(asking, prompts, strict=True) if self._fits(c, p)]
            if fitting:
                answers = self._unit(tuple(prompt for _, prompt in fitting))
                for (conversation, _), answer in zip(fitting, answers, strict=True):
                    conversation.answers.append(answer.text)

    def _fits(self, conversation: Conversation, prompt: Prompt) -> bool:
        limit, length = self.line_up.backend.max_length, len(prompt.tokens)
        fits = length > 0 and (limit is None or length < limit)
        if not fits:
            conversation.ended = True
            self.measured.skipped.append(
                f"prompt {prompt.name} has {length} tokens; the target takes 1 to {limit}, less one"
            )
        return fits

    def _unit(self, prompts: tuple[Prompt, ...]) -> tuple[Output, ...]:
        """All contenders and repeats on one batch of prompts; plain decoding's first answers."""
        trials: dict[str, list[Trial]] = {contender.name: [] for contender in self.line_up.contenders}
        for _ in range(self.plan.repeat):
            for contender in self._shuffled():
                trials[contender.name].append(self._trial(contender, prompts))
        self.measured.units.append(Unit(prompts, trials))
        return trials[PLAIN][0].outputs

    def _shuffled(self) -> Iterator[Contender]:
        contenders = self.line_up.contenders
        return (contenders[i] for i in self.order.permutation(len(contenders)))

    def _trial(self, contender: Contender, prompts: tuple[Prompt, ...], **changes: Any) -> Trial:
        self.tick(self.done, f"{contender.name}: {prompts[0].name}")
        generation = evolve(self.line_up.generation, **changes)
        settle(self.line_up.backend.device)
        started = time.perf_counter()
        outputs = contender.generate([prompt.tokens for prompt in prompts], generation)
        settle(self.line_up.backend.device)
        seconds = time.perf_counter() - started
        self.done += 1
        return Trial(tuple(outputs), seconds)


def settle(device: Any) -> None:
    """Wait until the device has done all that it was told, so that the clock sees it."""
    if str(device).startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)
