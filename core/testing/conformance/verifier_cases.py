"""Drafts of every form that a verifier may say it accepts, as drafters and as single decisions that are watched."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from draftmux.arrays import frozen_view
from draftmux.drafting import SequenceDrafter
from draftmux.generation import Generation
from draftmux.sampling import RuleContext, SamplingRule
from draftmux.testing.conformance.scenes import Scene, said
from draftmux.testing.drafters import Corrupt, Oracle, RandomTree, TreeOracle, grow_tree, room
from draftmux.testing.sampled import CHAINS, KINDS, SampledTree
from draftmux.testing.targets import hash_law
from draftmux.testing.toys import TOYS
from draftmux.tree import ROOT
from draftmux.types import Accepts, Budget, Context, Draft, Scores

if TYPE_CHECKING:
    from draftmux.sampling import Sampler
    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Acceptance

SIZE = 8
SETTINGS = (
    Generation(temperature=1.0, seed=3),
    Generation(),
    Generation(temperature=0.6, seed=4, top_k=4, repetition_penalty=1.4),
)


def forms(accepts: Accepts) -> list[str]:
    """Names of the kit's drafts that it says it accepts."""
    kinds = KINDS if accepts.tree else CHAINS
    toy = TOYS["random"]
    return [name for name, make in kinds.items() if not accepts.needs_q or make(toy.q).emits.q]


def drafters(accepts: Accepts, scene: Scene, truths: list[list[int]]) -> dict[str, Any]:
    """Drafters of the forms that it accepts; those without q only where that is accepted."""
    size = scene.target.vocab_size

    def law(prefix: tuple[int, ...]) -> list[float]:
        weights = np.exp(np.asarray(scene.law(prefix[-2:])))
        return (weights / weights.sum()).tolist()  # type: ignore[no-any-return]

    found: dict[str, Any] = {"sampled": SampledTree(law, (1, 1, 1))}
    if accepts.tree:
        found["sampled tree"] = SampledTree(law, (2, 2), replace=False)
    if not accepts.needs_q:
        found |= {"right": Oracle(truths), "wrong": Corrupt(truths, size, at=1)}
        if accepts.tree:
            found |= {"tree": TreeOracle(truths, size), "random": RandomTree(size)}
    return found


@frozen(eq=False)
class Tempting(SequenceDrafter):
    """The target's second choice, and then its own first ones: what lossy rules let pass."""

    law: Any
    k: int = 10

    def propose_one(self, context: Context, state: Any, budget: Budget) -> Draft:
        """One chain."""
        prefix = context.tokens.tolist()
        for place in range(room(budget, self.k)):
            prefix.append(int(np.argsort(np.asarray(self.law(tuple(prefix))))[-1 if place else -2]))
        return Draft.chain(prefix[len(context.tokens) :])


def decisions(subject: Subject, reverse: bool = False) -> Iterator[tuple[str, SamplerSpy, Draft, Acceptance]]:
    """Its decisions on single drafts of every form it accepts, the empty one included, and where."""
    bound = subject.bind(subject.scenes[0].target)
    cases = list(_cases(subject.plugin.accepts))
    for name, draft, generation, seed in reversed(cases) if reverse else cases:
        context, scores, spy = _situation(draft, generation, seed)
        where = (
            f"a draft of form '{name}' (tokens {said(draft.tokens)}, parents {said(draft.parents)}), prompt "
            f"{said(context.tokens)}, temperature {generation.temperature}, seed {generation.seed}"
        )
        try:
            acceptance = bound.accept(context, draft, scores, spy)
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        yield where, spy, draft, acceptance


def _cases(accepts: Accepts) -> Iterator[tuple[str, Draft, Generation, int]]:
    rng = np.random.default_rng(6)
    for seed, generation in enumerate(SETTINGS):
        yield "empty", Draft.empty(), generation, seed
        for name in forms(accepts):
            drafter = KINDS[name](_draft_law)
            context = _context(generation, seed)
            yield name, drafter.propose_one(context, None, Budget(max_depth=8)), generation, seed
        if not accepts.needs_q:
            trunk = rng.integers(0, SIZE, 9).tolist()
            wide = grow_tree(rng, trunk, 30 if accepts.tree else 0, SIZE, Budget())
            yield "large", wide, generation, seed


def _draft_law(prefix: tuple[int, ...]) -> list[float]:
    weights = np.exp(np.asarray(hash_law(3, SIZE)(prefix[-2:])) / 2)
    return (weights / weights.sum()).tolist()  # type: ignore[no-any-return]


def _context(generation: Generation, seed: int) -> Context:
    tokens = np.random.default_rng(seed).integers(0, SIZE, 6)
    return Context(f"request-{seed}", frozen_view(tokens), 4, 99, {}, (), generation)


def _situation(draft: Draft, generation: Generation, seed: int) -> tuple[Context, Scores, SamplerSpy]:
    import torch

    prefix, law = _context(generation, seed).tokens.tolist(), hash_law(seed, SIZE)
    paths = [draft.tokens[draft.path_to(node)].tolist() for node in range(ROOT, len(draft))]
    logits = torch.tensor([law((*prefix, *path)) for path in paths], dtype=torch.float64)
    sampler = sampler_of(draft, generation, seed, logits)
    return sampler.context, sampler.scores, SamplerSpy(sampler)


def sampler_of(draft: Draft, generation: Generation, seed: int, logits: Any) -> Sampler:
    """The production sampler of a request of its own, over `logits (N+1, V)` of the target."""
    context = _context(evolve(generation, seed=generation.seed + seed), seed)
    rule = SamplingRule.build(context.generation, RuleContext(SIZE, context.prompt_length, frozenset()))
    return rule.at(context, draft, Scores(logits))


class SamplerSpy:
    """A sampler that notes nodes that are not there, keys that are asked twice, and laws that are none."""

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner
        self._keys: set[tuple[str, int]] = set()
        self._before = self._seen()
        self.beyond: list[str] = []
        self.repeated: list[str] = []
        self.broken: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("pick", "logits", "p", "q", "position", "logprob"):
            return partial(self._asked, name, found)
        return found

    def _asked(self, name: str, found: Any, node: int, *rest: Any) -> Any:
        if not (0 if name == "q" else ROOT) <= node < len(self._inner.draft):
            self.beyond.append(f"sampler.{name}({node})")
        return found(node, *rest)

    def bernoulli(self, probability: float, key: int) -> bool:
        """Note the key."""
        self._once("bernoulli", key)
        return self._inner.bernoulli(probability, key)

    def draw(self, law: Any, key: int = ROOT) -> int:
        """Note the key."""
        self._once("draw", key)
        if not bool(((law >= 0) & law.isfinite()).all()) or not bool((law > 0).any()):
            self.broken.append(f"sampler.draw({law.tolist()})")
        return self._inner.draw(law, key)

    @property
    def untouched(self) -> bool:
        """Whether logits, draft and tokens are what they were."""
        return all(bool((one == two).all()) for one, two in zip(self._before, self._seen(), strict=True))

    def _seen(self) -> list[Any]:
        inner = self._inner
        arrays = [inner.draft.tokens.copy(), inner.draft.parents.copy(), inner.context.tokens.copy()]
        tensors = [inner.scores.logits, *([inner.draft.q] if inner.draft.q is not None else [])]
        return [*arrays, *(tensor.clone() for tensor in tensors)]

    def _once(self, name: str, key: int) -> None:
        if (name, key) in self._keys:
            self.repeated.append(f"sampler.{name}(…, {key})")
        self._keys.add((name, key))
