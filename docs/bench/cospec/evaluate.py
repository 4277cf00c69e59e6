"""What do arbiters make of problems that can be checked? All systems on the same problems, chunk by chunk.

    python docs/bench/cospec/evaluate.py pair.yaml problems.jsonl --task exact-string --validation 500 \
        --arbiter warm-up=arbiters/warmup --arbiter grpo=arbiters/grpo --json arbiters.json --threads 2

The first problems of the file choose options: each unlearned rule takes those that solve most. The others are for
figures: the share that is solved with a bootstrap interval of the difference from the target alone, an exact McNemar
test, what becomes right and wrong, how many of the problems that only the draft model solves are solved, target passes
a token (the draft alone: its own), and tokens a second relative to plain decoding, in an order of chunks and systems
drawn anew. Arbiters are also compared with the rule that is best on the first problems. Every problem is decoded with a
seed of its own.
"""

from __future__ import annotations

import json
import random
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from attrs import define, evolve, field, frozen
from torch import set_num_threads

from draftmux.cli.train_arbiter import task_of
from draftmux.config.load import read_pipeline
from draftmux.pipeline import Pipeline, plain_spec
from draftmux.verifiers.cospec.mining import Rig
from draftmux.verifiers.cospec.problems import read_problems, solves
from draftmux.verifiers.cospec.rollouts import roll_out
from draftmux.verifiers.cospec.significance import mcnemar, paired_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.problems import Problem

TARGET, DRAFT = "target alone", "draft alone"
FIXED = {"exact": "use: exact-match", "all kept": "use: threshold-arbiter, threshold: 0"}
GRID = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RULES: dict[str, dict[str, Sequence[float]]] = {  # and the values that each option is tried with
    "fly": {"window_following": (1, 2, 5), "entropy_threshold": (0.1, 0.3, 0.6)},
    "typical": {"epsilon": (0.03, 0.09, 0.2), "delta": (0.1, 0.3, 0.6)},
    "aasd": {"beta": (0.2, 0.3, 0.5), "floor": (0.02, 0.05, 0.1)},
    "threshold-arbiter": {"threshold": GRID},
    "divergence-arbiter": {"threshold": GRID},
}
EXACT_WHEN_GREEDY = ("typical",)  # nothing to choose then


@define(eq=False)
class Tally:
    """One system: what it solved, problem by problem, and what that took."""

    pipeline: Pipeline
    solved: list[bool] = field(factory=list)
    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0
    told: dict[str, float] = field(factory=dict)

    def run(self, problems: Sequence[tuple[int, Problem]], task: Task) -> None:
        """All of a chunk at once, each with its number for a seed."""
        pipeline = self.pipeline
        rig = Rig(pipeline.parts, pipeline.tokenizer, pipeline.spec.generation, pipeline.spec.max_batch)
        started = time.perf_counter()
        asks = [rig.ask(str(seed), problem, seed=seed) for seed, problem in problems]
        results = roll_out(rig.parts, rig.tokenizer, asks, rig.batch)
        self.seconds += time.perf_counter() - started
        for seed, problem in problems:
            result = results[str(seed)]
            self.solved.append(solves(task, result.text, problem))
            self.tokens += len(result.tokens)
            self.passes += result.metrics.steps
            for name, value in result.metrics.verifier.items():
                self.told[name] = self.told.get(name, 0.0) + value


@frozen(eq=False)
class Bench:
    """A pair, its drafter, and the task; pipelines share the target."""

    path: str
    overrides: tuple[str, ...]
    task: Task
    base: Pipeline
    drafter: str

    @classmethod
    def of(cls, path: str, task: str, batch: int, temperature: float) -> Bench:
        """Of a pipeline's file."""
        overrides = ("lossless=false", f"generation.temperature={temperature}", f"max_batch={batch}")
        spec = read_pipeline(path, ["verifier={use: exact-match}", *overrides])
        return cls(path, overrides, task_of(task), Pipeline.build(spec), next(iter(spec.drafters)))

    def system(self, verifier: str) -> Tally:
        """With another verifier."""
        return Tally(Pipeline.build(read_pipeline(self.path, [f"verifier={{{verifier}}}", *self.overrides]), self.base))

    def arbiter(self, folder: str, threshold: float | None = None) -> Tally:
        """With an arbiter, at its own threshold or another."""
        more = "" if threshold is None else f", threshold: {threshold}"
        return self.system(f"use: cospec-arbiter, arbiter: '{folder}', draft: {self.drafter}{more}")

    def alone(self) -> dict[str, Tally]:
        """The target, and the draft model as a target; without the latter where it is a part of the target."""
        plain = plain_spec(self.base.spec)
        name = self.base.spec.drafters[self.drafter].plugin.model
        found = {TARGET: Tally(Pipeline.build(plain, self.base))}
        if name is not None:
            found[DRAFT] = Tally(Pipeline.build(evolve(plain, models={"target": self.base.spec.models[name]})))
        return found

    def rules(self, problems: Sequence[Problem]) -> tuple[dict[str, str], str]:
        """Those that learn nothing, each with the options that solve most of some problems, and which of them solves
        most."""
        found, scores = dict(FIXED), {}
        for name, options in RULES.items():
            solved = {how: sum(self.tried(self.system(how), problems).solved) for how in self.ways(name, options)}
            found[name] = max(solved, key=lambda how: solved[how])
            scores[name] = solved[found[name]]
        return found, max(scores, key=lambda name: scores[name])

    def ways(self, rule: str, options: dict[str, Sequence[float]]) -> Iterator[str]:
        """One rule with all its values."""
        more = f", draft: {self.drafter}" if rule == "divergence-arbiter" else ""
        if self.base.spec.generation.greedy and rule in EXACT_WHEN_GREEDY:
            yield f"use: {rule}"
            return
        for values in product(*options.values()):
            chosen = ", ".join(f"{name}: {value}" for name, value in zip(options, values, strict=True))
            yield f"use: {rule}, {chosen}{more}"

    def tried(self, tally: Tally, problems: Sequence[Problem]) -> Tally:
        """A system on some problems."""
        self.play({"": tally}, problems, random.Random(0))
        return tally

    def at_rate_of(self, arbiter: Pipeline, problems: Sequence[Problem]) -> str:
        """Chance, at the rate at which an arbiter keeps mismatches of some problems."""
        return f"use: random-arbiter, rate: {kept(self.tried(Tally(arbiter), problems)):.4f}"

    def play(self, systems: dict[str, Tally], problems: Sequence[Problem], rng: random.Random) -> None:
        """All systems on all problems."""
        numbered, batch = list(enumerate(problems)), self.base.spec.max_batch
        for at in range(0, len(problems), batch):
            for name in rng.sample(list(systems), len(systems)):
                systems[name].run(numbered[at : at + batch], self.task)


def kept(tally: Tally) -> float:
    """The share of mismatches put to an arbiter that it kept."""
    return tally.told.get("kept", 0.0) / max(1.0, tally.told.get("decisions", 0.0))


@click.command()
@click.argument("path")
@click.argument("problems", type=click.Path(exists=True, path_type=Path))
@click.option("--task", required=True)
@click.option("--arbiter", "arbiters", multiple=True, metavar="NAME=FOLDER")
@click.option("--threshold", "thresholds", type=float, multiple=True, help="In place of the arbiters' own. Repeatable.")
@click.option("--against", help="The arbiter that all are compared with; the best rule by default.")
@click.option("--rules/--no-rules", default=True, show_default=True, help="Compare with rules that learn nothing.")
@click.option("--validation", type=click.IntRange(min=0), default=500, show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="Problems for figures, at most.")
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--threads", type=int, expose_value=False, callback=lambda _, __, value: value and set_num_threads(value))
def main(path: str, problems: Path, arbiters: tuple[str, ...], thresholds: tuple[float, ...], **more: Any) -> None:
    """Print a table; write all figures."""
    known = read_problems(problems)
    validation, test = known[: more["validation"]], known[more["validation"] :][: more["limit"]]
    if not test or (more["rules"] and not validation):
        raise click.UsageError(
            f"--validation {len(validation)} of {len(known)} problems leaves none for figures, or none to choose by"
        )
    bench = Bench.of(path, more["task"], more["batch"], more["temperature"])
    learned = {
        name if threshold is None else f"{name} at {threshold}": bench.arbiter(folder, threshold)
        for name, folder in named(arbiters).items()
        for threshold in thresholds or (None,)
    }
    other = more["against"]
    if other is not None and other not in learned:
        raise click.BadParameter(f"{other} is none of {', '.join(learned)}", param_hint="--against")
    rules, best = bench.rules(validation) if more["rules"] else ({}, None)
    for name in learned if rules else ():
        rules[f"random at the rate of {name}"] = bench.at_rate_of(learned[name].pipeline, validation)
    systems = {**bench.alone(), **{name: bench.system(how) for name, how in rules.items()}, **learned}
    bench.play(systems, test, random.Random(1))
    figures = {name: of(tally, systems) for name, tally in systems.items()}
    for name, found in figures.items():
        click.echo(line(name, found))
    either = np.any([systems[name].solved for name in (TARGET, DRAFT) if name in systems], axis=0).mean()
    click.echo(f"either alone: {either:.4f} of {len(test)} problems; rules: {rules}")
    for name in learned if other or best else ():
        figures[name]["against"] = {"name": other or best, **beside(systems[name], systems[other or best])}
        click.echo(f"{name}: {figures[name]['against']}")
    if more["out"]:
        told = {"figures": figures, "problems": len(test), "either": float(either), "rules": rules}
        more["out"].write_text(json.dumps(told, indent=2), "utf-8")


def named(arbiters: Sequence[str]) -> dict[str, str]:
    """Folders of arbiters by name; a usage error for a name that is taken."""
    found = dict(each.partition("=")[::2] for each in arbiters)
    taken = {TARGET, DRAFT, *FIXED, *RULES} & set(found)
    if taken or len(found) < len(arbiters) or not all(found.values()):
        raise click.BadParameter(
            f"give each arbiter as NAME=FOLDER with a name of its own: {', '.join(arbiters)}", param_hint="--arbiter"
        )
    return found


def beside(tally: Tally, other: Tally) -> dict[str, Any]:
    """One system and another on the same problems."""
    own, its = np.array(tally.solved), np.array(other.solved)
    return {
        "difference": float(own.mean() - its.mean()),
        "interval": paired_interval(own, its),
        "mcnemar": mcnemar(own.tolist(), its.tolist()),
    }


def of(tally: Tally, systems: dict[str, Tally]) -> dict[str, Any]:
    """Figures of one system, beside the target alone and the draft alone."""
    own, target = np.array(tally.solved), np.array(systems[TARGET].solved)
    draft = np.array(systems[DRAFT].solved) if DRAFT in systems else np.zeros_like(target)
    only = draft & ~target
    return {
        "solved": float(own.mean()),
        "right": "".join(str(int(each)) for each in own),
        **beside(tally, systems[TARGET]),
        "to_right": int((own & ~target).sum()),
        "to_wrong": int((~own & target).sum()),
        "recovered": float(own[only].mean()) if only.any() else float("nan"),
        "retained": float(own[target].mean()) if target.any() else float("nan"),
        "emergent": int((own & ~target & ~draft).sum()),
        "passes_per_token": tally.passes / max(1, tally.tokens),
        "speed": systems[TARGET].seconds / tally.seconds * tally.tokens / max(1, systems[TARGET].tokens),
        "kept": kept(tally) if tally.told.get("decisions") else None,
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
