"""Whether pipelines may be compared (one target, one backend, one way to generate), and names to tell them apart.

A ratio between runs that differ in more than their drafting says nothing about the drafting.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from attrs import asdict

from draftmux.config.describe import generation_settings
from draftmux.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from draftmux.config.spec import PipelineSpec

PLAIN = "plain"
TRANSFORMERS = "transformers"
PROMPT_LOOKUP = "transformers-prompt-lookup"
RESERVED = (PLAIN, TRANSFORMERS, PROMPT_LOOKUP)


def run_names(paths: Sequence[str]) -> list[str]:
    """A short name for each pipeline: the file's stem, or its path where stems clash; numbered when given twice."""
    stems = [PurePath(path).stem if path.endswith((".yaml", ".yml")) else path for path in paths]
    behind = {stem: {path for path, own in zip(paths, stems, strict=True) if own == stem} for stem in stems}
    names: list[str] = []
    for path, stem in zip(paths, stems, strict=True):
        name = path if stem in RESERVED or len(behind[stem]) > 1 else stem
        if name in RESERVED:
            raise PipelineError([f"a pipeline cannot be called '{name}' here, since that names a baseline; rename it"])
        earlier = names.count(name) + sum(known.startswith(f"{name}#") for known in names)
        names.append(f"{name}#{earlier + 1}" if earlier else name)
    return names


def check_comparable(specs: Sequence[PipelineSpec]) -> None:
    """PipelineError with every setting in which some pipeline's target or generation differs from the first one's."""
    first, *others = specs
    faults = [fault for other in others for fault in _differences(first, other)]
    if faults:
        raise PipelineError(faults)


def _differences(first: PipelineSpec, other: PipelineSpec) -> Iterator[str]:
    ours, theirs = _shared(first), _shared(other)
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        one, two = ours.get(key), theirs.get(key)
        if one != two:
            yield (
                f"{other.origin}: {key} is {two!r}, but {one!r} in {first.origin}; a benchmark compares pipelines with "
                f"one target and one way to generate (`--set {key}=…` sets it for all)"
            )


def _shared(spec: PipelineSpec) -> Mapping[str, Any]:
    """What must be the same in all pipelines, by its path in the file."""
    target = spec.models.get("target")
    return {
        **({f"models.target.{key}": value for key, value in asdict(target).items()} if target is not None else {}),
        "backend.use": spec.backend.use,
        **{f"backend.{key}": value for key, value in spec.backend.options.items()},
        **{f"generation.{key}": value for key, value in generation_settings(spec).items()},
    }
