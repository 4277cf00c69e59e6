"""How many tokens of the same sampled drafts do block and traversal verification accept, against rejection?

    python docs/bench/acceptance_rules.py --contexts 60 --threads 2

The target is the embedded model, the draft the same model without some of its middle layers (no training), both at the
same temperature. At positions of texts that the target sampled, a chain or a tree (drawn without replacement) is drawn
from the draft's law; every rule then verifies that one draft with the same `--repeats` seeds. Differences are paired by
context; intervals are bootstrapped over contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch
from attrs import evolve, frozen

from draftmux.bench.suites import SUITES
from draftmux.generation import Generation
from draftmux.pipeline import Pipeline, load, plain_spec
from draftmux.prompts import encode
from draftmux.protocols import Row
from draftmux.sampling import RuleContext, SamplingRule
from draftmux.types import Context, Draft, Scores
from draftmux.verifiers.block import Block
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

Law = Callable[[list[list[int]]], torch.Tensor]  # prefixes of one length -> laws (B, V)
SHAPES: dict[str, tuple[int, ...]] = {
    "chain of 4": (1, 1, 1, 1),
    "chain of 8": (1,) * 8,
    "tree 2x2x2": (2, 2, 2),
    "tree 4x2x1x1": (4, 2, 1, 1),
}


@frozen(eq=False)
class Study:
    """A target, its draft law, and how often each decision is repeated."""

    plain: Pipeline
    generation: Generation
    draft_law: Law
    repeats: int

    def accepted(self, tokens: list[int], shape: tuple[int, ...], rng: np.random.Generator) -> dict[str, float]:
        """Mean accepted tokens of one drawn draft, by rule."""
        draft = drawn(tokens, shape, self.draft_law, rng)
        scores = Scores(self._logits(tokens, draft))
        backend = self.plain.parts.backend
        context = Context("study", np.array(tokens, dtype=np.int64), 1, 99, {}, (), self.generation)
        rule = SamplingRule.build(self.generation, RuleContext(backend.vocab_size, 1, backend.eos_ids))
        rules: dict[str, Any] = {"rejection": Rejection(), "traversal": Traversal()}
        rules |= {"block": Block()} if max(shape) == 1 else {}
        found = {}
        for name, verifier in rules.items():
            lengths = []
            for seed in range(self.repeats):
                sampler = evolve(rule, seed=seed).at(context, draft, scores)
                lengths.append(len(verifier.accept(context, draft, scores, sampler).path))
            found[name] = float(np.mean(lengths))
        return found

    def _logits(self, tokens: list[int], draft: Draft) -> torch.Tensor:
        """The target's logits at the root and at every node, `(N+1, V)`, in one pass."""
        backend = self.plain.parts.backend
        handle = backend.open(tokens).sequence
        try:
            return backend.score([Row(handle, tokens[-1], draft)])[0].logits
        finally:
            backend.close(handle)


def drawn(tokens: list[int], shape: tuple[int, ...], law: Law, rng: np.random.Generator) -> Draft:
    """A tree with `shape[d]` children below every node of depth d, siblings drawn without replacement."""
    ids: list[int] = []
    parents: list[int] = []
    rows: list[torch.Tensor] = []
    level = [(-1, tokens)]
    for width in shape:
        following = []
        laws = law([prefix for _, prefix in level]).double()
        for (parent, prefix), rest in zip(level, laws, strict=True):  # rest: what is left to draw a sibling from
            for _ in range(width):
                q = rest / rest.sum()
                token = int(rng.choice(len(q), p=q.numpy()))
                ids.append(token)
                parents.append(parent)
                rows.append(q)
                following.append((len(ids) - 1, [*prefix, token]))
                rest[token] = 0
        level = following
    return Draft(ids, parents, torch.stack(rows).float())


def thinned(model: Any, skipped: range, temperature: float) -> Law:
    """The law of the model without the layers `skipped`."""
    layers = model.model.layers
    kept = torch.nn.ModuleList(layer for index, layer in enumerate(layers) if index not in skipped)

    def law(prefixes: list[list[int]]) -> torch.Tensor:
        model.model.layers = kept
        try:
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor(prefixes), use_cache=False, logits_to_keep=1).logits[:, -1]
            return (logits.float() / temperature).softmax(-1)
        finally:
            model.model.layers = layers

    return law


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the mean."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), (4000, len(values)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


@click.command()
@click.option("--contexts", type=int, default=60)
@click.option("--repeats", type=int, default=64)
@click.option("--temperature", type=float, default=1.0)
@click.option("--skip", default="12:16", help="Layers that the draft leaves out, FROM:TO.")
@click.option("--threads", type=int)
def main(contexts: int, repeats: int, temperature: float, skip: str, threads: int | None) -> None:
    """Print mean accepted tokens by shape and rule, and the paired gain over rejection."""
    if threads:
        torch.set_num_threads(threads)
    pipeline = load("pld", ["models.target.dtype=float32"])
    plain = Pipeline.build(plain_spec(pipeline.spec), share=pipeline)
    generation = Generation(temperature=temperature)
    first, last = map(int, skip.split(":"))
    law = thinned(plain.parts.backend.model, range(first, last), temperature)  # type: ignore[attr-defined]
    study = Study(plain, generation, law, repeats)
    places = list(positions(plain, temperature, contexts))
    print(f"{len(places)} contexts, {repeats} repeats, temperature {temperature}, draft without layers {skip}")
    for name, shape in SHAPES.items():
        rng = np.random.default_rng(0)
        rows = [study.accepted(tokens, shape, rng) for tokens in places]
        base = np.array([row["rejection"] for row in rows])
        print(f"{name}: rejection accepts {base.mean():.3f}", flush=True)
        for rule in rows[0].keys() - {"rejection"}:
            gain = np.array([row[rule] for row in rows]) - base
            low, high = interval(gain)
            share = 100 / (1 + base.mean())
            print(
                f"  {rule}: {gain.mean():+.3f} [{low:+.3f}, {high:+.3f}] tokens a pass, "
                f"{gain.mean() * share:+.1f} % [{low * share:+.1f}, {high * share:+.1f}] of its tokens per pass",
                flush=True,
            )


def positions(plain: Pipeline, temperature: float, count: int) -> Any:
    """Prefixes of texts that the target sampled, three a prompt."""
    rows = SUITES["humaneval"]().first((count + 2) // 3).rows
    for number in range(count):
        prompt = encode(rows[number // 3].turns[0], plain.tokenizer, plain.spec.generation)
        text = plain.generate(list(prompt), temperature=temperature, seed=number // 3, max_new_tokens=40).tokens
        yield [*prompt, *text[: 1 + number % 3 * 13]]


if __name__ == "__main__":
    main()
