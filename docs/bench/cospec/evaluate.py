"""What do arbiters make of problems that can be checked? All systems on the same problems, chunk by chunk.

    python docs/bench/cospec/evaluate.py pair.yaml problems.jsonl --task exact-string --validation 500 \
        --arbiter warm-up=arbiters/warmup --arbiter grpo=arbiters/grpo --json arbiters.json --threads 2

The first problems of the file are for thresholds: each unlearned rule takes the one that solves most. The others are
for figures: the share that is solved with a bootstrap interval of the difference from the target alone, an exact
McNemar test, what becomes right and wrong, how many of the problems that only the draft model solves are solved, target
passes a token, and seconds relative to plain decoding, in an order of chunks and systems drawn anew.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from attrs import define, evolve, field, frozen
from torch import set_num_threads

from draftmux.cli.train_arbiter import task_of
from draftmux.config.load import read_pipeline
from draftmux.pipeline import Pipeline, plain_spec
from draftmux.verifiers.cospec.problems import read_problems
from draftmux.verifiers.cospec.significance import mcnemar, paired_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.problems import Problem

TARGET, DRAFT = "target alone", "draft alone"
GRID = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RULES = {
    "exact": "use: exact-match",
    "all kept": "use: threshold-arbiter, threshold: 0",
    "fly": "use: fly, window_following: 2",
    "typical": "use: typical",
    "aasd": "use: aasd",
}
COMMON = ("lossless=false", "generation.temperature=0")
TUNED = {"threshold": "threshold-arbiter", "divergence": "divergence-arbiter"}


@define(eq=False)
class Tally:
    """One system: what it solved, problem by problem, and what that took."""

    pipeline: Pipeline
    solved: list[bool] = field(factory=list)
    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0
    told: dict[str, float] = field(factory=dict)

    def run(self, problems: Sequence[Problem], task: Task) -> None:
        """All of a chunk at once."""
        chats = [[dict(message) for message in problem.prompt.messages] for problem in problems]
        started = time.perf_counter()
        results = self.pipeline.generate(chats)
        self.seconds += time.perf_counter() - started
        for problem, result in zip(problems, results, strict=True):
            self.solved.append(task.solved(result.text, problem.reference))
            self.tokens += len(result.tokens)
            self.passes += result.metrics.steps
            for name, value in result.metrics.verifier.items():
                self.told[name] = self.told.get(name, 0.0) + value


@frozen(eq=False)
class Bench:
    """A pair, its drafter, and the task; pipelines share the target."""

    path: str
    batch: int
    task: Task
    base: Pipeline
    drafter: str

    def system(self, verifier: str) -> Tally:
        """With another verifier."""
        spec = read_pipeline(self.path, [f"verifier={{{verifier}}}", *COMMON, f"max_batch={self.batch}"])
        return Tally(Pipeline.build(spec, self.base))

    def plain(self) -> Tally:
        """The target alone."""
        return Tally(Pipeline.build(evolve(plain_spec(self.base.spec), max_batch=self.batch), self.base))

    def draft(self) -> dict[str, Tally]:
        """The draft model alone, as a target; nothing where it is a part of the target."""
        plain = plain_spec(self.base.spec)
        name = self.base.spec.drafters[self.drafter].plugin.model
        if name is None:
            return {}
        models = {"target": self.base.spec.models[name]}
        return {DRAFT: Tally(Pipeline.build(evolve(plain, models=models, max_batch=self.batch)))}

    def tuned(self, verifier: str, problems: Sequence[Problem]) -> str:
        """The rule with the threshold that solves most of some problems."""
        more = f", draft: {self.drafter}" if verifier == "divergence-arbiter" else ""
        best = (-1, "")
        for threshold in GRID:
            how = f"use: {verifier}, threshold: {threshold}{more}"
            tally = self.system(how)
            self.play({"": tally}, problems, random.Random(0))
            best = max(best, (sum(tally.solved), how), key=lambda each: each[0])
        return best[1]

    def play(self, systems: dict[str, Tally], problems: Sequence[Problem], rng: random.Random) -> None:
        """All systems on all problems."""
        for at in range(0, len(problems), self.batch):
            for name in rng.sample(list(systems), len(systems)):
                systems[name].run(problems[at : at + self.batch], self.task)


@click.command()
@click.argument("path")
@click.argument("problems", type=click.Path(exists=True, path_type=Path))
@click.option("--task", required=True)
@click.option("--arbiter", "arbiters", multiple=True, metavar="NAME=FOLDER")
@click.option("--threshold", "thresholds", type=float, multiple=True, help="Arbiters at it too. Repeatable.")
@click.option("--rules/--no-rules", default=True, show_default=True, help="Compare with rules that learn nothing.")
@click.option("--validation", type=int, default=500, show_default=True)
@click.option("--limit", type=int, help="Problems for figures, at most.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--batch", type=int, default=64, expose_value=True, show_default=True)
@click.option("--threads", type=int, expose_value=False, callback=lambda _, __, value: value and set_num_threads(value))
def main(
    path: str, problems: Path, task: str, arbiters: tuple[str, ...], thresholds: tuple[float, ...], **more: Any
) -> None:
    """Print a table; write all figures."""
    known = read_problems(problems)
    validation, test = known[: more["validation"]], known[more["validation"] :][: more["limit"]]
    spec = read_pipeline(path, ["verifier={use: exact-match}", *COMMON])
    base = Pipeline.build(spec)
    bench = Bench(path, more["batch"], task_of(task), base, next(iter(spec.drafters)))
    systems = {TARGET: bench.plain(), **bench.draft()}
    chosen = {name: bench.tuned(verifier, validation) for name, verifier in TUNED.items() if more["rules"]}
    rules = {**RULES, **chosen} if more["rules"] else {}
    systems |= {name: bench.system(how) for name, how in rules.items()}
    for name, _, folder in (each.partition("=") for each in arbiters):
        how = f"use: cospec-arbiter, arbiter: '{folder}', draft: {bench.drafter}"
        systems[name] = bench.system(how)
        systems |= {f"{name} at {each}": bench.system(f"{how}, threshold: {each}") for each in thresholds}
        if not more["rules"]:
            continue
        trial = bench.system(how)  # at what rate it keeps mismatches is looked up on other problems
        bench.play({"": trial}, validation, random.Random(0))
        rate = trial.told.get("kept", 0.0) / max(1.0, trial.told.get("decisions", 0.0))
        systems[f"random at {name}'s rate"] = bench.system(f"use: random-arbiter, rate: {rate:.4f}")
    bench.play(systems, test, random.Random(1))
    figures = {name: of(tally, systems) for name, tally in systems.items()}
    for name, found in figures.items():
        click.echo(line(name, found))
    either = np.any([systems[name].solved for name in (TARGET, DRAFT) if name in systems], axis=0).mean()
    click.echo(f"either alone: {either:.4f} of {len(test)} problems; chosen: {chosen}")
    if more["out"]:
        kept = {"figures": figures, "chosen": chosen, "problems": len(test), "either": float(either)}
        more["out"].write_text(json.dumps(kept, indent=2), "utf-8")


def of(tally: Tally, systems: dict[str, Tally]) -> dict[str, Any]:
    """Figures of one system, beside the target alone and the draft alone."""
    own, target = np.array(tally.solved), np.array(systems[TARGET].solved)
    draft = np.array(systems[DRAFT].solved) if DRAFT in systems else np.zeros_like(target)
    only = draft & ~target
    low, high = paired_interval(own, target)
    decisions = tally.told.get("decisions", 0.0)
    return {
        "solved": float(own.mean()),
        "right": "".join(str(int(each)) for each in own),
        "difference": float(own.mean() - target.mean()),
        "interval": [low, high],
        "mcnemar": mcnemar(own.tolist(), target.tolist()),
        "to_right": int((own & ~target).sum()),
        "to_wrong": int((~own & target).sum()),
        "recovered": float(own[only].mean()) if only.any() else float("nan"),
        "retained": float(own[target].mean()) if target.any() else float("nan"),
        "emergent": int((own & ~target & ~draft).sum()),
        "passes_per_token": tally.passes / max(1, tally.tokens),
        "speed": systems[TARGET].seconds / tally.seconds * tally.tokens / max(1, systems[TARGET].tokens),
        "kept": tally.told.get("kept", 0.0) / decisions if decisions else None,
        "arbiter_seconds": tally.told.get("seconds", 0.0) / tally.seconds,
        "asked": tally.told.get("asked", 0.0) / max(1.0, tally.told.get("blocks", 0.0)),
    }


def line(name: str, found: dict[str, Any]) -> str:
    """One system for people."""
    low, high = found["interval"]
    parts = [
        f"{name}: {found['solved']:.4f} ({found['difference']:+.4f} [{low:+.4f}, {high:+.4f}]",
        f"p {found['mcnemar']:.2g}",
        f"+{found['to_right']} -{found['to_wrong']})",
        f"recovered {found['recovered']:.1%}, retained {found['retained']:.1%}, emergent {found['emergent']}",
        f"{found['passes_per_token']:.3f} passes a token, {found['speed']:.2f}x",
    ]
    return "; ".join(parts) + ("" if found["kept"] is None else f", keeps {found['kept']:.0%}")


if __name__ == "__main__":
    main()
