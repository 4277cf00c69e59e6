"""Who runs in a benchmark: plain decoding, pipelines, and transformers' own `generate`, all on one loaded target.

Knows how each of them generates. Knows nothing of order, timing or statistics.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from attrs import frozen
from transformers import GenerationConfig, LogitsProcessorList

from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.bench.comparable import PLAIN, PROMPT_LOOKUP, TRANSFORMERS
from draftmux.binding import wanted_taps
from draftmux.engine.scheduler import Scheduler
from draftmux.errors import PipelineError
from draftmux.pipeline import Pipeline, plain_spec
from draftmux.sampling import RuleContext, SamplingRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from draftmux.config.spec import PipelineSpec
    from draftmux.engine.metrics import Metrics
    from draftmux.generation import Generation
    from draftmux.results import Result

LOOKUP_TOKENS = 10


@frozen(eq=False)
class Output:
    """One generated answer. `metrics` only where draftmux's engine made it."""

    tokens: tuple[int, ...]
    text: str
    seconds: float
    metrics: Metrics | None = None


class Contender(Protocol):
    """Something that generates; `lossless` says whether its text is meant to be the target's own.

    `pathwise`: even when it samples, the text of a seed is the one of plain decoding.
    """

    @property
    def name(self) -> str: ...
    @property
    def lossless(self) -> bool: ...
    @property
    def pathwise(self) -> bool: ...
    def generate(self, prompts: Sequence[tuple[int, ...]], generation: Generation) -> list[Output]: ...


@frozen(eq=False)
class PipelineContender:
    """A pipeline; its prompts run together, as one batch."""

    name: str
    pipeline: Pipeline

    @property
    def lossless(self) -> bool:
        """As its verifier says."""
        return self.pipeline.lossless

    @property
    def pathwise(self) -> bool:
        """As its verifier says."""
        return bool(self.pipeline.parts.verifier.pathwise)

    def generate(self, prompts: Sequence[tuple[int, ...]], generation: Generation) -> list[Output]:
        """Answers in order; raises the error of a request that failed."""
        pipeline = self.pipeline
        scheduler = Scheduler(pipeline.parts, pipeline.tokenizer, pipeline.lossless, max_batch=len(prompts))
        names = [scheduler.submit(prompt, generation) for prompt in prompts]
        results: dict[str, Result] = {}
        try:
            for delta in scheduler.run():
                if delta.error is not None:
                    raise delta.error
                if delta.result is not None:
                    results[delta.request_id] = delta.result
        finally:
            scheduler.clear()  # after an error the others' rows of the cache are still taken
        return [Output(r.tokens, r.text, r.seconds, r.metrics) for r in map(results.__getitem__, names)]


@frozen(eq=False)
class TransformersContender:
    """transformers' own `generate` on the backend's model, prompt by prompt, with the same processors and warpers."""

    name: str
    backend: Any
    lookup_tokens: int | None = None
    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = False  # it draws with random numbers of its own

    def generate(self, prompts: Sequence[tuple[int, ...]], generation: Generation) -> list[Output]:
        """Answers in order."""
        with _bare_defaults(self.backend.model):
            return [self._one(prompt, generation) for prompt in prompts]

    def _one(self, prompt: tuple[int, ...], generation: Generation) -> Output:
        started = time.perf_counter()
        tokenizer, rule = self.backend.tokenizer, self._rule(prompt, generation)
        ids = torch.tensor([prompt], device=self.backend.device)
        if not generation.greedy:
            torch.manual_seed(generation.seed)
        output = self.backend.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=self._config(prompt, generation),
            logits_processor=LogitsProcessorList([*rule.processors, *rule.warpers]),
            **({"tokenizer": tokenizer} if generation.stop else {}),
        )
        tokens = tuple(output[0, len(prompt) :].tolist())
        text = "" if tokenizer is None else tokenizer.decode(tokens, skip_special_tokens=True)
        return Output(tokens, text, time.perf_counter() - started)

    def _rule(self, prompt: tuple[int, ...], generation: Generation) -> SamplingRule:
        backend = self.backend
        context = RuleContext(backend.vocab_size, len(prompt), backend.eos_ids, backend.device, backend.tokenizer)
        return SamplingRule.build(generation, context)

    def _config(self, prompt: tuple[int, ...], generation: Generation) -> GenerationConfig:
        limit = self.backend.max_length
        room = generation.max_new_tokens if limit is None else limit - len(prompt)
        ends = sorted((set() if generation.ignore_eos else self.backend.eos_ids) | set(generation.stop_ids))
        # Warpers are handed over ready-made, so transformers must add none of its own (top-k 50 is its default).
        sampling = {} if generation.greedy else {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
        return GenerationConfig(
            max_new_tokens=min(generation.max_new_tokens, room),
            do_sample=not generation.greedy,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            stop_strings=generation.stop or None,
            prompt_lookup_num_tokens=self.lookup_tokens,
            **sampling,
        )


@contextmanager
def _bare_defaults(model: Any) -> Iterator[None]:
    """Hide the model's own generation settings, which `generate` would mix into what it is given."""
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


@frozen(eq=False)
class LineUp:
    """Contenders, `plain` first, and what they share. `copies` counts loaded targets: taps may force a second one."""

    contenders: tuple[Contender, ...]
    backend: Any
    generation: Generation
    copies: int = 1

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer, if it has one."""
        return self.backend.tokenizer


def line_up(specs: Mapping[str, PipelineSpec], with_transformers: bool = False) -> LineUp:
    """Load one target and bind every pipeline to it, after `plain`; specs must be comparable.

    Raises ModelError and PluginError as loading a pipeline does, PipelineError when the baseline needs another backend.
    """
    spec = next(iter(specs.values()))
    wanted = {PLAIN: plain_spec(spec), **specs}
    # Hidden-state taps are set when a target is loaded: whoever needs the most of them loads it, the others borrow it.
    order = sorted(wanted, key=lambda name: -len(wanted_taps(wanted[name])))
    built: dict[str, Pipeline] = {}
    for name in order:
        built[name] = Pipeline.build(wanted[name], share=built.get(order[0]))
    backend = built[PLAIN].parts.backend
    contenders: list[Contender] = [PipelineContender(name, built[name]) for name in wanted]
    targets = {id(pipeline.parts.backend) for pipeline in built.values()}
    if with_transformers:
        _check_baseline(backend, spec)
        reference = as_transformers_runs_it(backend, spec)
        targets.add(id(reference))
        contenders.append(TransformersContender(TRANSFORMERS, reference))
        contenders.append(TransformersContender(PROMPT_LOOKUP, reference, LOOKUP_TOKENS))
    copies = len(targets)
    return LineUp(tuple(contenders), backend, spec.generation, copies)


def as_transformers_runs_it(backend: Any, spec: PipelineSpec) -> Any:
    """A target whose model is as transformers loads it: the backend's own, or a copy where that has packed weights."""
    target = spec.models.get("target")
    if target is None or getattr(backend, "pristine", True):
        return backend
    return TransformersBackend(self_check=False).bind(target, ())


def _check_baseline(backend: Any, spec: PipelineSpec) -> None:
    if not hasattr(getattr(backend, "model", None), "generate"):
        raise PipelineError(
            [
                f"{spec.origin}: backend '{spec.backend.use}' holds no transformers model with its own `generate`; "
                f"leave out --baseline {TRANSFORMERS}, or use the transformers backend"
            ]
        )
    if spec.generation.constraint is not None:
        raise PipelineError(
            [
                f"{spec.origin}: transformers' own `generate` knows no constraint, and would write another text; leave "
                f"out --baseline {TRANSFORMERS}, or generation.constraint"
            ]
        )
