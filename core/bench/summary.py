"""From measured trials to what is reported: one frozen object that table, JSON, plot and HTML all read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import asdict, frozen

from draftmux.bench.comparable import PLAIN
from draftmux.bench.statistics import Totals, quantile, share, speedup, speedup_interval
from draftmux.engine.metrics import STAGES, Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftmux.bench.agreement import Agreement
    from draftmux.bench.run import Unit


@frozen
class DrafterShare:
    """What one drafter of a pipeline contributed."""

    steps: int
    accepted: int
    share_of_steps: float | None
    share_of_tokens: float | None
    accepted_per_step: float | None


@frozen
class UnitResult:
    """One prompt (or batch of prompts) of one contender, all repeats together."""

    prompt: str
    category: str
    tokens: int
    seconds: float
    speedup: float | None


@frozen(eq=False)
class Run:
    """One contender's figures. Those of the engine are None for transformers, which does not tell them."""

    pipeline: str
    lossless: bool
    totals: Totals
    speedup: float | None
    speedup_interval: tuple[float, float] | None
    metrics: Metrics | None
    request_rates: tuple[float, ...]
    agreement: Agreement
    agreement_with_transformers: Agreement | None
    categories: Mapping[str, float | None]
    units: tuple[UnitResult, ...]

    @property
    def tokens(self) -> int:
        """Tokens generated, all repeats together."""
        return int(self.totals.tokens.sum())

    @property
    def seconds(self) -> float:
        """Seconds of all requests, prefill included."""
        return float(self.totals.seconds.sum())

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens a target pass."""
        return None if self.metrics is None else self.metrics.mean_acceptance_length

    @property
    def acceptance_by_position(self) -> list[float]:
        """Share of drafts reaching depth 1, 2, … that were accepted there."""
        return [] if self.metrics is None else self.metrics.acceptance_by_position

    @property
    def stages(self) -> dict[str, float]:
        """Share of time by stage of the loop; of `accept` what the verifier says that it judged, and `other` is what no
        stage booked. They add up to 1."""
        if self.metrics is None or not self.seconds:
            return {}
        booked, seconds = self.metrics.seconds, {"prefill": self.metrics.prefill_seconds}
        for stage in STAGES:
            seconds[stage] = booked[stage]
            if stage == "accept":
                seconds["judge"] = min(booked[stage], max(0.0, self.metrics.verifier["seconds"]))
                seconds[stage] -= seconds["judge"]
        seconds["other"] = max(0.0, self.seconds - sum(seconds.values()))
        return {stage: spent / self.seconds for stage, spent in seconds.items()}

    @property
    def outside_model(self) -> float | None:
        """Share of time that was not a pass of the target."""
        stages = self.stages
        return 1 - stages["prefill"] - stages["score"] if stages else None

    @property
    def drafters(self) -> dict[str, DrafterShare]:
        """By drafter, those that drafted or had a token accepted."""
        metrics = self.metrics or Metrics()
        names = sorted({*metrics.steps_by_drafter, *metrics.accepted_by_drafter})
        committed = metrics.steps + metrics.accepted
        return {name: _drafter_share(metrics, name, committed) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "pipeline": self.pipeline,
            "lossless": self.lossless,
            "prompts": self.agreement.prompts,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_second": self.totals.rate,
            "speedup": self.speedup,
            "speedup_interval": self.speedup_interval,
            "mean_acceptance_length": self.mean_acceptance_length,
            **_agreement_dict("identical", self.agreement),
            **_agreement_dict("identical_to_transformers", self.agreement_with_transformers),
            "request_tokens_per_second": {
                "mean": float(np.mean(self.request_rates)) if self.request_rates else None,
                "p50": quantile(self.request_rates, 0.5),
                "p95": quantile(self.request_rates, 0.95),
            },
            **self._engine_dict(),
            "categories": dict(self.categories),
            "units": [asdict(unit) for unit in self.units],
            "differences": _differences(self.agreement, PLAIN),
            "differences_from_transformers": _differences(self.agreement_with_transformers, "transformers"),
        }

    def _engine_dict(self) -> dict[str, Any]:
        if self.metrics is None:
            return {}
        counted = self.metrics
        figures = counted.as_dict()
        figures["stage_seconds"] = figures.pop("seconds")
        return {
            **figures,
            "acceptance_rate": share(counted.accepted, counted.drafted),
            "rows_per_pass": share(counted.drafted + counted.steps, counted.steps),
            "route_microseconds": share(counted.seconds["route"] * 1e6, counted.steps),
            "stages": self.stages,
            "outside_model": self.outside_model,
            "drafters": {name: asdict(drafter) for name, drafter in self.drafters.items()},
        }


@frozen(eq=False)
class Report:
    """A whole benchmark. `stopped` says why it ended early, if it did; `notes` are sentences for the reader."""

    suite: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    command: str
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    stopped: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "runs": [{"pipeline": run.pipeline, "suite": self.suite, **run.as_dict()} for run in self.runs],
            "machine": dict(self.machine),
            "command": self.command,
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "skipped": list(self.skipped),
            "partial": self.stopped is not None,
            "stopped": self.stopped,
        }


def summarise(
    units: Sequence[Unit], name: str, lossless: bool, agreements: tuple[Agreement, Agreement | None], seed: int
) -> Run:
    """Figures of one contender; `agreements` with plain and with transformers."""
    ours, plain = totals(units, name), totals(units, PLAIN)
    outputs = [output for unit in units for trial in unit.trials[name] for output in trial.outputs]
    metrics = [output.metrics for output in outputs if output.metrics is not None]
    return Run(
        pipeline=name,
        lossless=lossless,
        totals=ours,
        speedup=speedup(ours, plain),
        speedup_interval=speedup_interval(ours, plain, seed),
        metrics=_sum(metrics) if metrics else None,
        request_rates=tuple(len(output.tokens) / output.seconds for output in outputs if output.seconds > 0),
        agreement=agreements[0],
        agreement_with_transformers=agreements[1],
        categories=_by_category(units, ours, plain),
        units=tuple(_unit_result(unit, i, ours, plain) for i, unit in enumerate(units)),
    )


def _sum(metrics: Sequence[Metrics]) -> Metrics:
    total = sum(metrics, Metrics())
    for name in {name for one in metrics for name in one.steps_by_drafter}:
        total.steps_by_drafter.setdefault(name, 0)  # counters drop zeros when they are added; a zero is news here
    return total


def totals(units: Sequence[Unit], name: str) -> Totals:
    """Tokens and seconds of each unit, repeats added up."""
    tokens = [sum(trial.tokens for trial in unit.trials[name]) for unit in units]
    seconds = [sum(trial.seconds for trial in unit.trials[name]) for unit in units]
    return Totals(np.array(tokens, dtype=np.float64), np.array(seconds, dtype=np.float64))


def _category(unit: Unit) -> str:
    return ", ".join(dict.fromkeys(prompt.category for prompt in unit.prompts if prompt.category))


def _by_category(units: Sequence[Unit], ours: Totals, plain: Totals) -> dict[str, float | None]:
    """Speed-up of each category, when there are several."""
    names = [_category(unit) for unit in units]
    kinds = list(dict.fromkeys(names))
    if len(kinds) < 2:
        return {}
    members = {kind: [i for i, name in enumerate(names) if name == kind] for kind in kinds}
    return {kind: speedup(_part(ours, those), _part(plain, those)) for kind, those in members.items()}


def _unit_result(unit: Unit, index: int, ours: Totals, plain: Totals) -> UnitResult:
    names = ", ".join(prompt.name for prompt in unit.prompts)
    one = _part(ours, [index])
    ratio = speedup(one, _part(plain, [index]))
    return UnitResult(names, _category(unit), int(one.tokens[0]), float(one.seconds[0]), ratio)


def _part(whole: Totals, indices: list[int]) -> Totals:
    return Totals(whole.tokens[indices], whole.seconds[indices])


def _drafter_share(metrics: Metrics, name: str, committed: int) -> DrafterShare:
    steps, accepted = metrics.steps_by_drafter[name], metrics.accepted_by_drafter[name]
    return DrafterShare(
        steps, accepted, share(steps, metrics.steps), share(accepted, committed), share(accepted, steps)
    )


def _agreement_dict(key: str, agreement: Agreement | None) -> dict[str, Any]:
    if agreement is None:
        return {}
    return {key: agreement.complete, f"{key.replace('identical', 'identical_prompts')}": agreement.identical}


def _differences(agreement: Agreement | None, reference: str) -> list[dict[str, Any]]:
    return [
        {
            "prompt": difference.prompt.name,
            "index": difference.index,
            "margin": difference.margin,
            "verdict": difference.verdict,
            f"{reference}_tokens": list(difference.reference),
            "tokens": list(difference.tokens),
        }
        for difference in (agreement.differences if agreement is not None else ())
    ]
