"""The one place where the target's logits become its law and its next token: processors, warpers, noise, tie-break.

Every tree node is processed with its own prefix (committed tokens plus the path to the node), so penalties and bans
mean what they mean in plain decoding. Noise is a pure function of (seed, position, token id): drawing
argmax(log p + Gumbel noise) gives the same text for the same seed, whatever the drafter, the batch or the step borders
(Daliri, Musco, Suresh, "Coupling without Communication and Drafter-Invariant Speculative Decoding", 2024).
"""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field, frozen

from draftmux.constraining import Constrained, begun
from draftmux.errors import DeadEndError, DraftmuxError, RequestError
from draftmux.noise import Stream, draw, perturbed, stream_seed, uniform
from draftmux.processors import RuleContext, processors, warpers
from draftmux.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from draftmux.generation import Generation
    from draftmux.protocols import ConstraintState
    from draftmux.types import Context, Draft, Scores

__all__ = ["RuleContext", "Sampler", "SamplingRule", "fetch_picks"]


@frozen(eq=False)
class SamplingRule:
    """How one request turns logits into a token: its settings, and the processors and warpers built from them."""

    greedy: bool
    seed: int
    processors: tuple[Any, ...]  # look at the prefix
    warpers: tuple[Any, ...]  # look at the logits alone
    constraint: ConstraintState | None = None  # before the first generated token

    @classmethod
    def build(cls, generation: Generation, context: RuleContext) -> SamplingRule:
        """Build the processors; RequestError when a setting does not fit the vocabulary or needs a tokenizer."""
        try:
            prefixed, plain = processors(generation, context), warpers(generation)
        except (TypeError, ValueError) as error:  # transformers' own checks
            raise RequestError(f"a sampling setting is not possible: {error}") from error
        constraint = begun(generation, context) if generation.constraint is not None else None
        return cls(generation.greedy, generation.seed, tuple(prefixed), tuple(plain), constraint)

    def process(self, row: Tensor, prefix: Callable[[], Tensor], allowed: Tensor | None = None) -> Tensor:
        """Logits `(V,)` as the request wants them, in float32 or better; when sampling, softmax of them is the law.

        `prefix` gives all ids before the token, `(1, T)`; `allowed (V,)` is what a constraint lets through.
        """
        found = upcast(row)[None]  # (1, V)
        if self.processors:
            ids = prefix().to(row.device)
            for processor in self.processors:
                found = processor(ids, found)
        if allowed is not None:
            found = found.masked_fill(~allowed.to(row.device), -math.inf)
        for warper in self.warpers:
            found = warper(None, found)
        return found[0]

    def at(self, context: Context, draft: Draft, scores: Scores, constraint: ConstraintState | None = None) -> Sampler:
        """The sampler of one step of one sequence; `constraint` is the state after its committed tokens."""
        return Sampler(self, context, draft, scores, Constrained(constraint, draft) if constraint is not None else None)


@define(eq=False)
class Sampler:
    """The target's law p at the rows of one scored draft, and the noise of one step. -1 is the root, i is node i.

    `pick` is what plain decoding would do. Verifiers that weigh p against q take `p` and `q`, and leave every random
    decision to `bernoulli` and `draw`.
    """

    rule: SamplingRule
    context: Context
    draft: Draft
    scores: Scores
    constrained: Constrained | None = None
    dead_ends: dict[int, DraftmuxError] = field(factory=dict, init=False)  # node -> why no token can follow it
    _picks: Sequence[int] | None = field(default=None, init=False)  # of the root and all nodes; -1 where none can be
    _processed: dict[int, Tensor] = field(factory=dict, init=False)
    _laws: dict[int, Tensor] = field(factory=dict, init=False)

    def pick(self, node: int) -> int:
        """The token plain decoding would put after `node`: the likeliest (lowest id on ties), or the seeded draw."""
        if self._picks is None and self.plain:
            fetch_picks([self])
        if self._picks is not None:
            token = self._picks[node + 1]
            return token if token >= 0 or self._alive(node, math.nan) else 0
        value, best = self._noisy(node).max(-1)
        return int(best) if self._alive(node, float(value)) else 0

    @property
    def plain(self) -> bool:
        """Whether the pick is the likeliest token of the target's own law."""
        return self.rule.greedy and not self.rule.processors and self.constrained is None

    def all_picks(self) -> Tensor:
        """`(N+1,)` on the device: the picks after the root and after all nodes; -1 where no token can follow."""
        nodes = range(ROOT, len(self.draft))
        rows = self.scores.logits if self.plain else torch.stack([self._noisy(node) for node in nodes])
        values, tokens = rows.max(-1)
        return torch.where(values.isfinite(), tokens, -1)

    def _noisy(self, node: int) -> Tensor:
        """Logits `(V,)` whose largest is the pick."""
        logits = self.logits(node)
        return logits if self.rule.greedy else perturbed(logits, self.rule.seed, self.position(node))

    def logits(self, node: int) -> Tensor:
        """Processed logits `(V,)` after `node`, in float32 or better; when sampling, softmax of them is p."""
        if node not in self._processed:
            self._processed[node] = self._process(node)
        return self._processed[node]

    def p(self, node: int) -> Tensor:
        """The target's law after `node`, `(V,)`: one-hot at the likeliest token when greedy, else softmax.

        Where no token can follow, any law will do: the engine lets nothing stand that comes after such a node.
        """
        if node not in self._laws:
            self._laws[node] = self._law(node)
        return self._laws[node]

    def q(self, node: int) -> Tensor:
        """The law `(V,)` that `node` was drawn from; one-hot at its token if the draft has no q: a point mass."""
        if self.draft.q is not None:
            law = self.draft.q[node].to(upcast(self.scores.logits[0]))
            return law / law.sum()
        return self._one_hot(int(self.draft.tokens[node]))

    def bernoulli(self, probability: float, key: int) -> bool:
        """True with that probability. Ask once a step with each `key`, usually the node that is tested."""
        noise = uniform(stream_seed(self.rule.seed, Stream.ACCEPT), len(self.context.tokens), key + 1)
        return noise < probability

    def draw(self, law: Tensor, key: int = ROOT) -> int:
        """A token drawn from `law (V,)`, which need not be normalised. Ask once a step with each `key`."""
        return draw(law, stream_seed(self.rule.seed, Stream.RESIDUAL, key + 1), len(self.context.tokens))

    def logprob(self, node: int, token: int) -> float:
        """The target's own log-probability of `token` after `node`, before processors and warpers."""
        return float(upcast(self.scores.logits[node + 1]).log_softmax(-1)[token])

    def position(self, node: int) -> int:
        """Absolute index that the token after `node` will have."""
        depth = 0 if node == ROOT else int(self.draft.depths[node])
        return len(self.context.tokens) + depth

    def _law(self, node: int) -> Tensor:
        if self.rule.greedy:
            return self._one_hot(self.pick(node))
        logits = self.logits(node)
        if not self._alive(node, float(logits.max())):
            return torch.full_like(logits, 1 / len(logits))
        return logits.softmax(-1)

    def _one_hot(self, token: int) -> Tensor:
        law = torch.zeros_like(upcast(self.scores.logits[0]))
        law[token] = 1
        return law

    def _process(self, node: int) -> Tensor:
        allowed = None if self.constrained is None else self._allowed(node)
        return self.rule.process(self.scores.logits[node + 1], lambda: self._prefix(node), allowed)

    def _prefix(self, node: int) -> Tensor:
        """Ids before the token after `node`: committed, then the path. `(1, T + depth)`."""
        path = self.draft.tokens[self.draft.path_to(node)]
        committed = torch.from_numpy(self.context.tokens.copy())
        return torch.cat((committed, torch.from_numpy(path)))[None]

    def _alive(self, node: int, best: float) -> bool:
        """Whether a token can follow; a node after which none can is noted."""
        if math.isfinite(best):
            return True
        bans = "bans" if self.constrained is None else "bans and the constraint"
        self.dead_ends.setdefault(
            node,
            DeadEndError(
                f"request {self.context.request_id}: no token can follow position {self.position(node) - 1}: the best "
                f"logit is {best}; either {bans} leave nothing, or the model overflows its dtype (try float32)"
            ),
        )
        return False

    def allows(self, node: int, token: int) -> bool:
        """Whether the request's constraint, if it has one, lets `token` follow `node`."""
        return self.constrained is None or bool(self._allowed(node)[token])

    def _allowed(self, node: int) -> Tensor:
        """`(V,)` bool; nothing where the constraint fails, which then is why the request cannot go on there."""
        size = self.scores.logits.shape[-1]
        assert self.constrained is not None
        try:
            return torch.from_numpy(self.constrained.allowed(node, size))
        except DraftmuxError as error:
            self.dead_ends[node] = error
            return torch.zeros(size, dtype=torch.bool)


def fetch_picks(samplers: Sequence[Sampler], sampled: bool = False, also: Tensor | None = None) -> list[int]:
    """Copy picks of all rows from the device, once for a whole batch: those of plain greedy requests, which cost one
    pass over the logits, and with `sampled` the others too. `also (k,)` are whole numbers that come along.

    On the host it pays to make the others when they are asked for. A constraint is stepped on the host, so picks under
    one are made one by one everywhere.
    """
    found: list[tuple[Sampler, Tensor]] = []
    for s in samplers:
        if s.plain or (sampled and s.constrained is None and not on_host(s.scores.logits)):
            with suppress(Exception):  # a processor that fails is met where its request is decided, and fails it alone
                found.append((s, s.all_picks()))
    wanted = [picks for _, picks in found] + ([] if also is None else [also])
    fetched = iter(torch.cat([each.to(wanted[0].device) for each in wanted]).tolist() if wanted else ())
    for sampler, _ in found:
        sampler._picks = list(islice(fetched, len(sampler.draft) + 1))
    return list(fetched)


def on_host(logits: Tensor) -> bool:
    """Whether reading them takes no copy from a device."""
    return logits.device.type == "cpu"


def upcast(row: Tensor) -> Tensor:
    """In float32 or better."""
    return row if row.dtype == torch.float64 else row.to(torch.float32)
