"""What a reader of a benchmark must be told in words: what was not measured, equal, lossless, or at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.bench.agreement import TIE
from draftmux.bench.comparable import PLAIN, PROMPT_LOOKUP, TRANSFORMERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftmux.bench.agreement import Agreement, Difference
    from draftmux.bench.contenders import LineUp
    from draftmux.bench.summary import Run


def notes(line_up: LineUp, runs: Sequence[Run], dtype: str) -> Iterator[str]:
    """One sentence or two each."""
    for run in runs:
        yield from _run_notes(run, dtype)
    if any(run.pipeline == TRANSFORMERS for run in runs) and not line_up.generation.greedy:
        yield f"{TRANSFORMERS} samples from the same law with random numbers of its own, so its texts are others."
    if line_up.copies > 1:
        yield (
            f"The target was loaded {line_up.copies} times: hidden-state taps are set when it is loaded, and these "
            f"pipelines tap it in different places."
        )
    if str(line_up.backend.device).startswith("cuda"):
        yield (
            "On a GPU a pass runs while the host goes on, so much of the target's time is booked where its result is "
            "waited for (accept), and the share outside the target is an upper bound."
        )


def _run_notes(run: Run, dtype: str) -> Iterator[str]:
    if not run.lossless:
        yield f"{run.pipeline} is lossy: its verifier accepts tokens that the target would not have chosen."
    for name, drafter in run.drafters.items():
        if not drafter.steps and not drafter.accepted:
            yield f"{run.pipeline}: drafter '{name}' never had a draft."
    for kind in ("router", "verifier"):
        reported = getattr(run.metrics, kind, None)
        if reported:
            told = ", ".join(f"{name} {value:.4g}" for name, value in reported.items())
            yield f"{run.pipeline}: its {kind} reports: {told}."
    for fault, count in (run.metrics.faults if run.metrics is not None else {}).items():
        yield f"{run.pipeline}: a plugin failed {count} times and was passed over: {fault}"
    yield from _agreement_notes(run.pipeline, PLAIN, run.agreement, dtype)
    outside = run.agreement_with_transformers
    if outside is not None and outside.breaches and run.pipeline not in (PROMPT_LOOKUP, TRANSFORMERS):
        yield from _agreement_notes(run.pipeline, TRANSFORMERS, outside, dtype)


def _agreement_notes(name: str, reference: str, agreement: Agreement, dtype: str) -> Iterator[str]:
    breaches = agreement.breaches
    if breaches:
        yield (
            f"{name} must give the text of {reference} and does not for {len(breaches)} of {agreement.prompts}: "
            f"{_place(breaches[0])}. In {dtype} rounding does not explain that; a plugin or the backend is at fault."
        )
    ties = [difference for difference in agreement.differences if difference.verdict == "tie"]
    if ties:
        yield (
            f"{name} leaves the text of {reference} for {len(ties)} of {agreement.prompts} prompts where the two best "
            f"logits are within {TIE:g}, which is rounding: {_place(ties[0])}."
        )
    if agreement.in_law and name not in (TRANSFORMERS, PROMPT_LOOKUP):
        yield (
            f"{name} leaves the text of {reference} for {len(agreement.differences)} of {agreement.prompts} prompts, "
            f"which is expected and not judged: when it samples, its verifier keeps the target's law, and not the text "
            f"of a seed. Temperature 0, or verifier exact-match, gives the same text."
        )
    reported = [difference for difference in agreement.differences if difference.verdict == "reported"]
    if reported:
        widest = max(reported, key=lambda difference: difference.margin or 0.0)
        yield (
            f"{name} leaves the text of {reference} for {len(reported)} of {agreement.prompts} prompts ({dtype}); "
            f"the widest margin at a first difference: {_place(widest)}."
        )


def _place(difference: Difference) -> str:
    margin = "no margin" if difference.margin is None else f"margin {difference.margin:.2g}"
    return f"prompt {difference.prompt.name}, token {difference.index}, {margin}"
