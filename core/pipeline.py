"""From a specification to a running pipeline: models loaded, plugins bound, requests served."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from attrs import asdict, define, evolve

from draftmux.binding import bind_backend, bind_parts, fetch, shareable
from draftmux.config.faults import Faults, Place
from draftmux.config.grammar import generation_shape
from draftmux.config.load import read_pipeline
from draftmux.config.nodes import Entry, tree
from draftmux.config.spec import PluginSpec
from draftmux.engine.scheduler import Scheduler
from draftmux.errors import RequestError
from draftmux.plugins import registry
from draftmux.prompts import encode, is_single
from draftmux.protocols import Constraint
from draftmux.routers.fixed import Fixed
from draftmux.verifiers.exact_match import ExactMatch

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from draftmux.config.spec import PipelineSpec
    from draftmux.engine.step import Parts
    from draftmux.errors import DraftmuxError
    from draftmux.generation import Generation
    from draftmux.results import Delta, Result


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

    @classmethod
    def build(cls, spec: PipelineSpec, share: Pipeline | None = None) -> Pipeline:
        """Bind every part. `share` lends its loaded target, when both want the same one."""
        fetch(spec)
        lender = share.parts if share is not None and shareable(spec, share.spec) else None
        backend = lender.backend if lender is not None else bind_backend(spec)
        return cls(spec, bind_parts(spec, backend, lender), backend.tokenizer)

    @property
    def lossless(self) -> bool:
        """Whether the text is the target's own."""
        return bool(self.parts.verifier.lossless)

    def generate(self, prompts: Any, **settings: Any) -> Any:
        """Generate for one prompt (a Result) or a list of prompts (a list of Results, in order).

        A prompt is a text, a sequence of token ids, or a chat (a list of `{"role", "content"}`). `settings` override
        the file's `generation`. Raises RequestError for what cannot be served, PluginError under
        `on_plugin_error: raise`; the others of a list are finished first, and stand in the error's `finished`.
        """
        single = is_single(prompts)
        scheduler = self.scheduler()
        names = self._submit_all(scheduler, [prompts] if single else prompts, settings)
        results: dict[str, Result] = {}
        errors: list[DraftmuxError] = []
        with closing(scheduler.run()) as deltas:
            for delta in deltas:
                if delta.error is not None:
                    errors.append(delta.error)
                if delta.result is not None:
                    results[delta.request_id] = delta.result
        if errors:
            errors[0].finished = [results.get(name) for name in names]
            raise errors[0]
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

    def stream(self, prompt: Any, **settings: Any) -> Generator[Delta]:
        """Generate for one prompt, giving out what each step adds; closing the iterator frees the sequence."""
        scheduler = self.scheduler()
        self.submit(scheduler, prompt, **settings)
        with closing(scheduler.run()) as deltas:
            for delta in deltas:
                if delta.error is not None:
                    raise delta.error
                yield delta

    def scheduler(self) -> Scheduler:
        """A new queue over this pipeline's engine."""
        return Scheduler(self.parts, self.tokenizer, self.lossless, self.spec.max_batch)

    def submit(self, scheduler: Scheduler, prompt: Any, **settings: Any) -> str:
        """Encode a prompt and queue it; returns the request's id."""
        generation = override(self.spec.generation, settings, self.spec.plugins)
        return scheduler.submit(tuple(encode(prompt, self.tokenizer, generation)), generation)


def override(generation: Generation, settings: Mapping[str, Any], packages: Sequence[str] | None = None) -> Generation:
    """`generation` with some settings changed, read as strictly as a file; RequestError with every fault.

    `packages`: those whose constraints may be named, if not all may.
    """
    if not settings:
        return generation
    values = {**asdict(generation, recurse=False), **settings}
    constraint = values["constraint"]
    ready = isinstance(constraint, Constraint)  # an object, not `{use: NAME}`
    faults, place = Faults(), Place("settings")
    entry = Entry(place, tree({**values, "constraint": None} if ready else values, place))
    changed: Generation = generation_shape(registry(packages)).build(entry, "", faults)
    if len(faults):
        raise RequestError("; ".join(faults.sentences()))
    return evolve(changed, constraint=constraint) if ready else changed


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
