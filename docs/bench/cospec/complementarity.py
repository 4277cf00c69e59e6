"""What could an arbiter gain at all? The local complementarity gap at mismatches, and an oracle's answers.

    python docs/bench/cospec/complementarity.py pair.yaml problems.jsonl --task exact-string --skip 500 --limit 500

At every mismatch of exact greedy decoding that an arbiter is asked about (not where the target ends its answer) both
branches are decoded to their end by the target: with the draft's token, and with its own. The gap is the mean of (U_d -
U_t)+ over mismatches, U being 1 for a right answer and 0 for a wrong one. The oracle looks for decisions that make an
answer right: it flips up to `--flips` decisions of a decoding, within `--tries` decodings a problem. So what it finds
is reachable, and there may be more.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from attrs import evolve, field, frozen
from torch import set_num_threads

from draftmux.cli.train_arbiter import open_pair, task_of
from draftmux.routers.fixed import Fixed
from draftmux.verifiers.cospec.mining import Choice, Rig, by_outcome
from draftmux.verifiers.cospec.problems import read_problems
from draftmux.verifiers.cospec.rollouts import refusing, roll_out
from draftmux.verifiers.cospec.significance import paired_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.protocols import Task
    from draftmux.verifiers.cospec.problems import Problem
    from draftmux.verifiers.cospec.walk import Block

ALL = 10_000  # mismatches of a problem
Script = tuple[bool, ...]


@frozen(eq=False)
class Scripts:
    """Decides by a script for each request, and refuses behind its end; `made` are the decisions as they were taken."""

    asked: dict[str, Script]
    made: dict[str, list[bool]] = field(factory=dict)

    def keep(self, block: Block, node: int, score: float) -> bool:
        """The next decision of a request."""
        name = block.request.context.request_id
        made, script = self.made.setdefault(name, []), self.asked[name]
        made.append(script[len(made)] if len(made) < len(script) else False)
        return made[-1]


def scripted(
    rig: Rig, task: Task, problems: Sequence[Problem], scripts: Sequence[Script]
) -> list[tuple[bool, list[bool]]]:
    """Whether each problem is solved with its script, and all decisions that were taken."""
    names = [str(number) for number in range(len(problems))]
    asked = Scripts(dict(zip(names, scripts, strict=True)))
    [drafter] = rig.parts.drafters
    verifier = evolve(refusing(rig.parts), keep=asked.keep)
    parts = evolve(rig.parts, verifier=verifier, router=Fixed(drafter=drafter))
    found = roll_out(parts, rig.tokenizer, [rig.ask(n, p) for n, p in zip(names, problems, strict=True)], rig.batch)
    return [
        (task.solved(rig.text(found[name].tokens), problem.reference), asked.made.get(name, []))
        for name, problem in zip(names, problems, strict=True)
    ]


@frozen(eq=False)
class Search:
    """One problem that is not solved yet: scripts that wait to be tried, with few flips first."""

    problem: Problem
    waiting: list[Script] = field(factory=lambda: [()])

    def add(self, script: Script, made: Sequence[bool], flips: int) -> None:
        """What may be tried after a decoding: each refusal behind the script turned into a keep."""
        if sum(script) < flips:
            self.waiting.extend((*made[:at], True) for at in range(len(script), len(made)))
            self.waiting.sort(key=sum)


def oracle(rig: Rig, task: Task, problems: Sequence[Problem], tries: int, flips: int) -> list[int | None]:
    """Per problem how many decisions had to be flipped, None where nothing was found."""
    found: list[int | None] = [None] * len(problems)
    searches = {number: Search(problem) for number, problem in enumerate(problems)}
    for _ in range(tries):
        searches = {number: each for number, each in searches.items() if each.waiting}
        scripts = {number: each.waiting.pop(0) for number, each in searches.items()}
        results = scripted(rig, task, [searches[number].problem for number in scripts], list(scripts.values()))
        for (number, script), (right, made) in zip(scripts.items(), results, strict=True):
            if right:
                found[number] = sum(script)
                del searches[number]
            else:
                searches[number].add(script, made, flips)
    return found


@click.command()
@click.argument("path")
@click.argument("problems", type=click.Path(exists=True, path_type=Path))
@click.option("--task", required=True)
@click.option("--skip", type=int, default=0)
@click.option("--limit", type=int, default=500, show_default=True)
@click.option("--tries", type=int, default=32, show_default=True)
@click.option("--flips", type=int, default=6, show_default=True)
@click.option("--batch", type=int, default=64, show_default=True)
@click.option("--max-new-tokens", type=int, default=96, show_default=True)
@click.option("--threads", type=int, expose_value=False, callback=lambda _, __, value: value and set_num_threads(value))
def main(path: str, problems: Path, **more: Any) -> None:
    """Print both."""
    task, known = task_of(more["task"]), read_problems(problems)[more["skip"] :][: more["limit"]]
    pipeline, _ = open_pair(path, ())
    generation = evolve(pipeline.spec.generation, temperature=0.0, max_new_tokens=more["max_new_tokens"])
    rig = Rig(pipeline.parts, pipeline.tokenizer, generation, more["batch"])
    rows = by_outcome(rig, known, task, Choice(ALL, 0))
    if not rows:
        raise click.ClickException("draft and target never differ on these problems")
    outcomes = Counter(row.right for row in rows)
    for right, count in sorted(outcomes.items(), reverse=True):
        words = ["right" if each else "wrong" for each in right or ()]
        click.echo(f"draft branch {words[0]}, target branch {words[1]}: {count} ({count / len(rows):.1%})")
    better = [row.key for row in rows if row.right == (True, False)]
    click.echo(
        f"gap: {len(better) / len(rows):.4f} over {len(rows)} mismatches, positive in {len(set(better))} of "
        f"{len(known)} problems"
    )
    found = oracle(rig, task, known, more["tries"], more["flips"])
    plain, best = np.array([each == 0 for each in found]), np.array([each is not None for each in found])
    low, high = paired_interval(best, plain)
    click.echo(
        f"target alone {plain.mean():.4f}, oracle {best.mean():.4f} (+{best.mean() - plain.mean():.4f} "
        f"[{low:.4f}, {high:.4f}]), flips {dict(sorted(Counter(n for n in found if n is not None).items()))}"
    )


if __name__ == "__main__":
    main()
