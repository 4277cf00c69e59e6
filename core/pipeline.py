"""From a specification to a running pipeline: models loaded, plugins bound, requests served."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, fields

from draftmux.config.load import read_pipeline
from draftmux.config.spec import PluginSpec
from draftmux.engine.guard import Guard
from draftmux.engine.scheduler import Scheduler
from draftmux.engine.step import Parts
from draftmux.errors import RequestError, did_you_mean
from draftmux.generation import Generation
from draftmux.protocols import Resources
from draftmux.routers.fixed import Fixed
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from draftmux.config.spec import PipelineSpec
    from draftmux.protocols import Drafter
    from draftmux.results import Delta, Result
    from draftmux.types import Tap


def load(path_or_name: str | Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Load a pipeline file, or a shipped pipeline by name, with `key.path=value` overrides.

    Raises PipelineError with all faults of the file, ModelError when weights cannot be had, PluginError.
    """
    return Pipeline.build(read_pipeline(path_or_name, overrides))


@define(eq=False)
class Pipeline:
    """A target with its drafters, router and verifier, ready to generate."""

    spec: PipelineSpec
    parts: Parts
    tokenizer: Any
    max_batch: int = field(default=8)

    @classmethod
    def build(cls, spec: PipelineSpec, share: Pipeline | None = None) -> Pipeline:
        """Bind every part. `share` lends its loaded target, when both want the same one."""
        router, verifier = spec.router.plugin, spec.verifier.plugin
        wanted = {name: s.plugin for name, s in spec.drafters.items() if name in reachable(spec)}
        if share is not None and shareable(spec, share.spec):
            backend = share.parts.backend
        else:
            backend = spec.backend.plugin.bind(spec.models.get("target"), wanted_taps(spec))
        drafters = _bind_drafters(wanted, Resources(backend.tokenizer, backend, spec.models))
        resources = Resources(backend.tokenizer, backend, spec.models, drafters)
        chosen = {name: drafters[name] for name in router.uses() or drafters}
        parts = Parts(backend, chosen, router.bind(resources), verifier.bind(resources), Guard(spec.on_plugin_error))
        return cls(spec, parts, backend.tokenizer)

    @property
    def lossless(self) -> bool:
        """Whether the text is the target's own."""
        return bool(self.parts.verifier.lossless)

    def generate(self, prompts: Any, **settings: Any) -> Any:
        """Generate for one prompt (a Result) or a list of prompts (a list of Results, in order).

        A prompt is a text, a sequence of token ids, or a chat (a list of `{"role", "content"}`). `settings` override
        the file's `generation`. Raises RequestError for what cannot be served, PluginError under
        `on_plugin_error: raise`.
        """
        single = is_single(prompts)
        scheduler = self.scheduler()
        names = self._submit_all(scheduler, [prompts] if single else prompts, settings)
        results: dict[str, Result] = {}
        for delta in scheduler.run():
            if delta.error is not None:
                raise delta.error
            if delta.result is not None:
                results[delta.request_id] = delta.result
        ordered = [results[name] for name in names]
        return ordered[0] if single else ordered

    def _submit_all(self, scheduler: Scheduler, prompts: Sequence[Any], settings: Mapping[str, Any]) -> list[str]:
        names = []
        for number, prompt in enumerate(prompts, start=1):
            try:
                names.append(self.submit(scheduler, prompt, **settings))
            except RequestError as error:
                raise RequestError(f"prompt {number} of {len(prompts)}: {error}") from error
        return names

    def stream(self, prompt: Any, **settings: Any) -> Iterator[Delta]:
        """Generate for one prompt, giving out what each step adds; closing the iterator frees the sequence."""
        scheduler = self.scheduler()
        self.submit(scheduler, prompt, **settings)
        for delta in scheduler.run():
            if delta.error is not None:
                raise delta.error
            yield delta

    def scheduler(self) -> Scheduler:
        """A new queue over this pipeline's engine."""
        return Scheduler(self.parts, self.tokenizer, self.lossless, self.max_batch)

    def submit(self, scheduler: Scheduler, prompt: Any, **settings: Any) -> str:
        """Encode a prompt and queue it; returns the request's id."""
        generation = override(self.spec.generation, settings)
        return scheduler.submit(tuple(encode(prompt, self.tokenizer, generation)), generation)


def override(generation: Generation, settings: Mapping[str, Any]) -> Generation:
    """`generation` with some settings changed; RequestError for unknown names or bad values."""
    known = [attribute.name for attribute in fields(Generation)]
    for name in settings:
        if name not in known:
            raise RequestError(f"unknown setting '{name}'{did_you_mean(name, known)}")
    try:
        return evolve(generation, **settings)
    except (TypeError, ValueError) as error:
        raise RequestError(f"bad setting: {error}") from error


def is_single(prompts: Any) -> bool:
    """Whether this is one prompt (a text, token ids, or one chat) and not a list of prompts."""
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], (Integral, Mapping)))


def encode(prompt: Any, tokenizer: Any, generation: Generation) -> list[int]:
    """Token ids of a text, a chat, or ids themselves; RequestError when the tokenizer cannot do it."""
    if not isinstance(prompt, str) and (not len(prompt) or not isinstance(prompt[0], Mapping)):
        return [int(token) for token in prompt]
    if tokenizer is None:
        raise RequestError("this backend has no tokenizer; give token ids")
    try:
        return _encode(prompt, tokenizer, generation)
    except RequestError:
        raise
    except Exception as error:  # tokenizers and chat templates refuse prompts in ways of their own
        raise RequestError(f"the target's tokenizer cannot encode the prompt: {error}") from error


def _encode(prompt: Any, tokenizer: Any, generation: Generation) -> list[int]:
    templated = getattr(tokenizer, "chat_template", None) is not None
    if not isinstance(prompt, str) or generation.prompt_format == "chat":
        if not templated:
            raise RequestError("the target's tokenizer has no chat template; use prompt_format: raw and a text prompt")
    elif generation.prompt_format == "raw" or not templated:
        return list(tokenizer(prompt)["input_ids"])
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])


def reachable(spec: PipelineSpec) -> set[str]:
    """Drafters that the router can choose, and those they are made of."""
    queue = list(spec.router.plugin.uses() or spec.drafters)
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += spec.drafters[name].plugin.uses()
    return found


def wanted_taps(spec: PipelineSpec) -> tuple[Tap, ...]:
    """Every tap that the router or a reachable drafter needs, sorted."""
    plugins = [spec.router.plugin, *(spec.drafters[name].plugin for name in reachable(spec))]
    return tuple(sorted({tap for plugin in plugins for tap in plugin.needs.taps}))


def shareable(spec: PipelineSpec, lender: PipelineSpec) -> bool:
    """Whether `spec` can use the target that was loaded for `lender`: the same one, with all taps it needs."""
    same = (spec.backend.use, spec.backend.options) == (lender.backend.use, lender.backend.options)
    same = same and spec.models.get("target") == lender.models.get("target")
    return same and set(wanted_taps(spec)) <= set(wanted_taps(lender))


def plain_spec(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline without drafters, routing or a lossy verifier: the target's own text at the engine's own speed."""
    return evolve(
        spec,
        drafters={},
        router=PluginSpec("router", "fixed", Fixed(), {}),
        verifier=PluginSpec("verifier", "exact-match", ExactMatch(), {}),
        lossless=True,
        description="",
    )


def _bind_drafters(plugins: Mapping[str, Any], resources: Resources) -> dict[str, Drafter]:
    """Bind in order of use: a drafter made of others is bound after them."""
    bound: dict[str, Drafter] = {}

    def bind(name: str) -> None:
        if name not in bound:
            for part in plugins[name].uses():
                bind(part)
            bound[name] = plugins[name].bind(evolve(resources, drafters=dict(bound)))

    for name in plugins:
        bind(name)
    return bound
