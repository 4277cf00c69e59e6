"""Judges a finished measurement: who agrees with whom, and the figures of every contender, in one report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from attrs import frozen

from draftmux.bench.agreement import Agreement, Margins, Policy, compare, logits_dtype
from draftmux.bench.comparable import PLAIN, PROMPT_LOOKUP, TRANSFORMERS
from draftmux.bench.machine import describe
from draftmux.bench.notes import notes
from draftmux.bench.summary import Report, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftmux.bench.contenders import Contender, LineUp
    from draftmux.bench.run import Measured


def make_report(line_up: LineUp, measured: Measured, suite: str, settings: Mapping[str, Any], command: str) -> Report:
    """Compare all outputs and sum up all trials. `settings["seed"]` draws the bootstrap's samples."""
    dtype = logits_dtype(line_up.backend)
    judge = _Judge(line_up, measured, dtype, Margins(line_up.backend, line_up.generation))
    runs = tuple(
        summarise(measured.units, contender.name, contender.lossless, judge.agreements(contender), settings["seed"])
        for contender in line_up.contenders
    )
    return Report(
        suite=suite,
        runs=runs,
        settings=settings,
        machine=describe(line_up.backend, dtype),
        command=command,
        notes=tuple(notes(line_up, runs, dtype)),
        skipped=tuple(measured.skipped),
        stopped=measured.stopped,
    )


def write_json(report: Report, path: Path) -> None:
    """The report as one JSON object."""
    path.write_text(json.dumps(report.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


@frozen(eq=False)
class _Judge:
    line_up: LineUp
    measured: Measured
    dtype: str
    margins: Margins

    def agreements(self, contender: Contender) -> tuple[Agreement, Agreement | None]:
        """With plain decoding, and with transformers if it ran."""
        ran = any(other.name == TRANSFORMERS for other in self.line_up.contenders)
        return self._with(PLAIN, contender), self._with(TRANSFORMERS, contender) if ran else None

    def _with(self, reference: str, contender: Contender) -> Agreement:
        foreign = {reference, contender.name} & {TRANSFORMERS, PROMPT_LOOKUP}
        # transformers rounds logits to float32 before it compares them, even those of a float64 model.
        dtype = "float32" if foreign and self.dtype == "float64" else self.dtype
        greedy = self.line_up.generation.greedy
        shared = contender.name == reference or (contender.pathwise and reference == PLAIN)
        policy = Policy(
            dtype,
            demands_text=contender.lossless and greedy,
            in_law=contender.lossless and not (greedy or shared),
            exact=not foreign and getattr(self.line_up.backend, "exact", False),
        )
        return compare(self.measured.units, contender.name, reference, policy, self.margins)
