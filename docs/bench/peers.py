"""draftmux beside transformers and other programs, on one model, in one run.

    OMP_NUM_THREADS=2 python docs/bench/peers.py pld merge --limit 40 --threads 2 --json OUT.json \\
        --peer flashspec:gamma=10=PYTHON --peer economize=PYTHON --peer llama.cpp:weights=bf16=PYTHON

Every prompt of HumanEval is run by every contender before the next one, in an order drawn anew, greedily, from the same
token ids, and alone: pipelines and transformers in this process, each peer in a worker of its own that sleeps until it
is asked. PYTHON is an interpreter that has the peer; what may stand after the colon is said in `peer_workers.py`.
Seconds are what a caller waits, prefill included, and nothing is kept from prompt to prompt. Ratios are to
transformers' own plain `generate`.
"""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, evolve, frozen
from peer_client import Peer, PeerContender, working
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from draftmux.bench.comparable import TRANSFORMERS
from draftmux.bench.statistics import speedup, speedup_interval
from draftmux.bench.suites import SUITES
from draftmux.bench.table import number, times
from draftmux.cli.options import set_option, threads_option, use_threads
from draftmux.errors import DraftmuxError, RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peer_setups import Setups

    from draftmux.bench.contenders import LineUp
    from draftmux.bench.run import Measured, Plan, Unit
    from draftmux.bench.suites import Suite
    from draftmux.config.spec import PipelineSpec


@frozen(eq=False)
class Line:
    """One contender's figures. `identical` counts the prompts with transformers' own text; None for other weights."""

    name: str
    weights: str
    tokens_per_second: float
    ratio: float | None
    interval: tuple[float, float] | None
    identical: int | None
    prompts: Sequence[Mapping[str, Any]]


def figures(units: Sequence[Unit], weights: Mapping[str, str], seed: int) -> list[Line]:
    """Figures of each contender that `weights` names, against transformers' plain `generate`."""
    from draftmux.bench.summary import totals

    base = totals(units, TRANSFORMERS)
    made = []
    for name, form in weights.items():
        ours, prompts = totals(units, name), [_prompt(unit, name) for unit in units]
        same = sum(prompt["identical"] for prompt in prompts) if form == weights[TRANSFORMERS] else None
        made.append(Line(name, form, ours.rate, speedup(ours, base), speedup_interval(ours, base, seed), same, prompts))
    return made


def _prompt(unit: Unit, name: str) -> dict[str, Any]:
    trial, base = unit.trials[name][0], unit.trials[TRANSFORMERS][0]
    return {
        "prompt": unit.prompts[0].name,
        "prompt_tokens": len(unit.prompts[0].tokens),
        "seconds": trial.seconds,
        "seconds_inside": trial.outputs[0].seconds,
        "identical": trial.outputs[0].tokens == base.outputs[0].tokens,
        "tokens": list(trial.outputs[0].tokens),
    }


def make_table(lines: Sequence[Line], title: str) -> Table:
    """One line a contender."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("contender", overflow="fold")
    for column in ("weights", "tokens\n/s", "x plain\ngenerate", "95 %\ninterval", "identical"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in lines:
        known = line.interval is not None and line.name != TRANSFORMERS
        interval = "[{:.2f}, {:.2f}]".format(*line.interval or ()) if known else "-"
        same = "-" if line.identical is None else f"{line.identical}/{len(line.prompts)}"
        table.add_row(line.name, line.weights, number(line.tokens_per_second, 1), times(line.ratio), interval, same)
    return table


def parse_peers(texts: Sequence[str]) -> list[Peer]:
    """The peers by their names, each once; RequestError otherwise."""
    peers = [Peer.parse(text) for text in texts]
    names = [peer.name for peer in peers]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"peer '{name}' is given {names.count(name)} times; give each of its settings once")
    return peers


def read_specs(names: Sequence[str], overrides: Sequence[str]) -> dict[str, PipelineSpec]:
    """The pipelines by short names; RequestError when they sample, PipelineError when they cannot be compared."""
    from draftmux.bench.comparable import check_comparable, run_names
    from draftmux.config.load import read_pipeline

    specs = {name: read_pipeline(path, overrides) for name, path in zip(run_names(names), names, strict=True)}
    check_comparable(list(specs.values()))
    if not all(spec.generation.greedy for spec in specs.values()):
        raise RequestError("peers are compared in greedy decoding only; leave generation.temperature at 0")
    return specs


def longest(line_up: LineUp, suite: Suite) -> int:
    """Tokens of the longest prompt and its answer."""
    from draftmux.bench.conversation import Conversation

    prompts = [Conversation(row).prompt(line_up.tokenizer, line_up.generation) for row in suite.rows]
    return max(len(prompt.tokens) for prompt in prompts) + line_up.generation.max_new_tokens


def start(peers: Sequence[Peer], setups: Setups, running: ExitStack) -> tuple[list[PeerContender], list[str]]:
    """The peers that could be started, until `running` is left, and why the others could not."""
    started, left_out = [], []
    for peer in peers:
        try:
            worker = running.enter_context(working(peer, setups.of(peer)))
        except DraftmuxError as error:
            left_out.append(f"left out: {error}")
            click.echo(left_out[-1], err=True)
            continue
        started.append(PeerContender(worker, sorted(setups.backend.eos_ids)))
    return started, left_out


def run(line_up: LineUp, suite: Suite, plan: Plan) -> Measured:
    """Measure, and say what is running; what every contender has finished before an interrupt is kept."""
    from draftmux.bench.run import measure, trial_count

    total = trial_count(line_up, suite, plan)
    measured = measure(line_up, suite, plan, lambda done, what: _say(f"{done}/{total} {what}"))
    _say("")
    if not measured.units:
        raise measured.error or click.Abort()
    return measured


def _say(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{what}", err=True, nl=False)


def notes(measured: Measured, peers: Sequence[PeerContender], lines: Sequence[Line]) -> list[str]:
    """What a reader must know besides the table."""
    own = {peer.name for peer in peers}
    passing = [p["seconds"] - p["seconds_inside"] for line in lines if line.name in own for p in line.prompts]
    told = [f"left out: {peer.fault}" for peer in peers if peer.fault is not None]
    told += [f"skipped: {what}" for what in measured.skipped]
    if measured.stopped:
        told.append(f"partial: {measured.stopped}")
    if passing:
        told.append(
            f"Handing prompts and answers to and fro took a peer at most {1000 * max(passing):.1f} ms a prompt."
        )
    return told


def compare(specs: Mapping[str, PipelineSpec], peers: Sequence[Peer], suite: Suite, plan: Plan) -> dict[str, Any]:
    """Load everything, measure, and put the figures together."""
    from peer_setups import Setups

    from draftmux.bench.contenders import TransformersContender, line_up
    from draftmux.bench.machine import describe

    spec = next(iter(specs.values()))
    own = line_up(specs, with_transformers=True)
    with TemporaryDirectory() as folder, ExitStack() as running:
        reference = next(each.backend for each in own.contenders if isinstance(each, TransformersContender))
        setups = Setups(spec.models["target"], reference, Path(folder), longest(own, suite))
        others, left_out = start(peers, setups, running)
        measured = run(evolve(own, contenders=(*own.contenders, *others)), suite, plan)
        weights = dict.fromkeys((contender.name for contender in own.contenders), setups.own_weights)
        weights |= {other.name: setups.weights(other.worker.peer) for other in others if other.fault is None}
        lines = figures(measured.units, weights, plan.seed)
        return {
            "runs": lines,
            "notes": [*left_out, *notes(measured, others, lines)],
            "machine": describe(own.backend, setups.dtype),
            "versions": {other.name: dict(other.worker.versions) for other in others},
        }


@click.command()
@click.argument("pipelines", metavar="PIPELINE...", nargs=-1, required=True)
@click.option("--suite", type=click.Choice(sorted(SUITES)), default="humaneval", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first rows.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--peer", "peers", multiple=True, metavar="KIND[:KEY=VALUE,...]=PYTHON", help="A peer. Repeatable.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures and tokens.")
@click.option("--warmup", type=click.IntRange(min=0), default=3, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws orders and bootstrap samples.")
@set_option
@threads_option
def main(pipelines: Sequence[str], suite: str, out: Path | None, **given: Any) -> None:
    """Run PIPELINEs, transformers and peers side by side."""
    from draftmux.bench.run import Plan

    if out is not None and not out.absolute().parent.is_dir():
        raise click.UsageError(f"--json {out}: there is no folder {out.absolute().parent}; create it first")
    use_threads(given["threads"])
    peers = parse_peers(given["peers"])
    specs = read_specs(pipelines, (*given["overrides"], f"generation.max_new_tokens={given['max_new_tokens']}"))
    chosen = SUITES[suite]().first(given["limit"])
    result = compare(specs, peers, chosen, Plan(warmup=given["warmup"], seed=given["seed"]))
    result["command"] = shlex.join(["python", *sys.argv])
    if out is not None:
        told = {**result, "runs": [asdict(line) for line in result["runs"]]}
        out.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    console = Console()
    console.print(make_table(result["runs"], f"{suite}: {len(result['runs'][0].prompts)} prompts"))
    for line in (*result["notes"], *(f"{k}: {v}" for k, v in result["versions"].items()), result["machine"]["line"]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(result["command"], markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except DraftmuxError as error:
        sys.exit(f"Error: {error}")
