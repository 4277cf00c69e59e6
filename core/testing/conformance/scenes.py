"""Targets, requests and recorded decodings that checks play plugins through. Knows no plugin and no check."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import asdict, define, evolve, field, fields, frozen

from draftmux.generation import Generation
from draftmux.protocols import Row
from draftmux.routing import BaseRouter
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask, Expected, expect
from draftmux.testing.targets import MODEL_VOCAB, hash_law, model_law, random_table, scripted, table_law, tiny_target
from draftmux.types import Choice, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from draftmux.backends.scripted import Law
    from draftmux.protocols import BoundBackend, Drafter, Router
    from draftmux.types import Context, Step, Tap

LETTERS = "abcdefghijklmnopqrstuvwxyz .,!?'-:;0123"  # with the end token: MODEL_VOCAB
END = 3
SHOWN = 24  # tokens of a sequence that a message quotes


@frozen(eq=False)
class Scene:
    """A bound target, and its law by the book: `law(prefix)` gives the logits `(V,)` after a prefix."""

    name: str
    target: Any
    law: Law
    kept: dict[Any, Any] = field(factory=dict)  # what is the same for every plugin

    def expect(self, ask: Ask) -> Expected:
        """What plain decoding gives; worked out once."""
        found: Expected = self.once(described(ask), lambda: expect(ask, self.target, self.law))
        return found

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives, made at most once."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


def scene_of(target: BoundBackend) -> Scene:
    """The scene of a target that the kit did not make."""
    return Scene("the given target", target, one_by_one(target))


@cache
def scenes(taps: tuple[Tap, ...]) -> list[Scene]:
    """A text that repeats itself, one that wanders, and a tiny Llama; with taps, that one alone."""
    if taps:
        return [Scene("a tiny Llama", tiny_target("llama", taps=taps), model_law("llama"))]
    table, wander = table_law(random_table(5, MODEL_VOCAB)), hash_law(7, MODEL_VOCAB)
    return [
        Scene("a target that repeats itself", scripted(table, MODEL_VOCAB, eos_ids={END}), table),
        Scene("a target that wanders", scripted(wander, MODEL_VOCAB, max_length=2500), wander),
        Scene("a tiny Llama", tiny_target("llama", positions=512), model_law("llama", 512)),
    ]


def one_by_one(target: BoundBackend) -> Law:
    """The law of any bound backend: prefill the prefix, and score its last token without a draft."""

    @cache
    def law(prefix: tuple[int, ...]) -> Sequence[float]:
        sequence = target.open(prefix).sequence
        try:
            [scores] = target.score([Row(sequence, prefix[-1], Draft.empty())])
            return scores.logits[0].double().tolist()
        finally:
            target.close(sequence)

    return law


@cache
def small_tokenizer() -> Any:
    """A token a letter, as many as the kit's own targets have."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    ids = {letter: number for number, letter in enumerate(LETTERS)}
    tokenizer = Tokenizer(models.BPE(vocab={**ids, "<end>": len(LETTERS)}, merges=[], unk_token="?"))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="?")


def asks(target: BoundBackend, *, sampled: bool, count: int = 4, new_tokens: int = 16) -> list[Ask]:
    """Requests with repetitive prompts of different length, each with settings of its own."""
    rng = np.random.default_rng(11)
    found = []
    for number in range(count):
        piece = rng.integers(0, target.vocab_size, 1 + 3 * number)
        prompt = tuple(np.concatenate([piece, *([piece] if number % 2 else [])]).tolist())
        generation = Generation(max_new_tokens=new_tokens, seed=number, **_settings(number, sampled))
        found.append(Ask(prompt, generation, f"{'sampled' if sampled else 'greedy'}-{number}"))
    return found


def _settings(number: int, sampled: bool) -> dict[str, Any]:
    prefixed: list[dict[str, Any]] = [{}, {"repetition_penalty": 1.3}, {"frequency_penalty": 0.7}]
    warped: list[dict[str, Any]] = [{}, {"top_k": 6}, {"top_p": 0.8}, {"min_p": 0.1, "no_repeat_ngram_size": 3}]
    chosen = dict(prefixed[number % 3])
    return chosen | {"temperature": (0.7, 1.0, 0.4)[number % 3], **warped[number % 4]} if sampled else chosen


@define(eq=False)
class Recording(BaseRouter):
    """Another router's choices, and what it was shown: the context before every step, the step itself afterwards."""

    inner: Router
    contexts: list[Context] = field(factory=list)
    steps: list[Step] = field(factory=list)

    def begin(self, context: Context) -> Any:
        """The inner state."""
        return self.inner.begin(context)

    def choose(self, state: Any, context: Context, drafters: Mapping[str, Drafter]) -> Choice:
        """Note the context."""
        self.contexts.append(evolve(context, history=tuple(map(_timeless, context.history))))
        return self.inner.choose(state, context, drafters)

    def observe(self, state: Any, step: Step) -> None:
        """Note the step."""
        self.steps.append(_timeless(step))
        self.inner.observe(state, step)


def _timeless(step: Step) -> Step:
    """The same step with every stage of the same length, so that it is the same in every process."""
    return evolve(step, seconds=dict.fromkeys(step.seconds, 1e-3))


@frozen(eq=False)
class Transcript:
    """One request as it was decoded with other plugins: `contexts[i]` is what stood before `steps[i]`."""

    ask: Ask
    contexts: tuple[Context, ...]
    steps: tuple[Step, ...]


def record(target: BoundBackend, drafters: Mapping[str, Drafter], router: Router, ask: Ask) -> Transcript:
    """Decode a request, and keep what plugins are shown."""
    recording = Recording(router)
    outcome = serve(assemble(target, drafters, recording), [ask])[ask.request_id]
    assert outcome.error is None, outcome.error
    return Transcript(ask, tuple(recording.contexts), tuple(recording.steps))


def said(tokens: Iterable[int]) -> str:
    """Token ids, as messages show them."""
    found = [int(token) for token in tokens]
    if len(found) <= SHOWN:
        return str(found)
    return f"{len(found)} tokens that end in {found[-SHOWN:]}"


def described(ask: Ask) -> str:
    """A request, so that it can be repeated: its id, its prompt, and every setting that is not the default."""
    defaults = asdict(Generation())
    changed = [
        f"{option.name}={getattr(ask.generation, option.name)}"
        for option in fields(Generation)
        if getattr(ask.generation, option.name) != defaults[option.name]
    ]
    return f"request '{ask.request_id}' (prompt {said(ask.tokens)}, {', '.join(changed)})"
