"""From a draft model's logits to a node's children: the request's own settings, a draft vocabulary, noise.

q means what p means: temperature, penalties and warpers of the request apply to it, each node with its own prefix. Only
a constraint is left out; the engine takes off what it forbids.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from attrs import evolve, frozen

from draftmux.noise import Stream, draw, perturbed, stream_seed
from draftmux.sampling import RuleContext, SamplingRule, upcast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.drafters.neural.growth import Sprout
    from draftmux.drafters.neural.shape import Shape
    from draftmux.protocols import BoundBackend
    from draftmux.types import Context

    Child = tuple[int, float, Tensor | None]  # token, log q, its row of q if it was sampled


@frozen(eq=False)
class Vocabulary:
    """Ids of the target, `size` of them, and which of them the draft model's logits stand for: `ids`, or the first."""

    size: int
    ids: Tensor | None = None  # (V',) on the device of the logits

    def cut(self, logits: Tensor) -> Tensor:
        """Logits of ids that the target has; padding of a larger embedding goes."""
        return logits if self.ids is not None else logits[..., : self.size]

    def widen(self, row: Tensor, nothing: float = -math.inf) -> Tensor:
        """Logits, or a law with `nothing` 0, `(V,)` over the target's ids; that where the draft model has none."""
        if self.ids is None and len(row) == self.size:
            return row
        wide = row.new_full((self.size,), nothing)
        if self.ids is None:
            wide[: len(row)] = row
        else:
            wide[self.ids] = row
        return wide

    def targets(self, places: Tensor) -> Tensor:
        """Ids of the target at places of the draft vocabulary."""
        return places if self.ids is None else self.ids[places]


@frozen(eq=False)
class Law:
    """One request's way from logits to children."""

    rule: SamplingRule
    vocabulary: Vocabulary
    shape: Shape

    @classmethod
    def of(cls, context: Context, backend: BoundBackend, vocabulary: Vocabulary, shape: Shape) -> Law:
        """By the request's settings; RequestError when they do not fit, as the engine has found before."""
        about = RuleContext(
            backend.vocab_size, context.prompt_length, backend.eos_ids, backend.device, backend.tokenizer
        )
        return cls(SamplingRule.build(evolve(context.generation, constraint=None), about), vocabulary, shape)

    def children(self, sprout: Sprout, nodes: Sequence[int], logits: Tensor) -> list[list[Child]]:
        """The children of each of `nodes`, by its row of `logits (n, V')`; none where the draft model is unsure."""
        logits = self.vocabulary.cut(logits)
        if self.rule.greedy and not self.rule.processors and self.shape.draw != "sampled":
            return self._likeliest(logits)
        return [self._family(sprout, node, row) for node, row in zip(nodes, logits, strict=True)]

    def _likeliest(self, logits: Tensor) -> list[list[Child]]:
        """All rows at once, one copy from the device."""
        if not self.shape.knows_confidence:  # a chain: nothing is compared
            return [[(token, 0.0, None)] for token in self.vocabulary.targets(logits.argmax(-1)).tolist()]
        values, places = upcast(logits).log_softmax(-1).topk(min(self.shape.top_k, logits.shape[-1]))
        found = torch.stack((self.vocabulary.targets(places).double(), values.double())).cpu().numpy()
        return [
            [(int(token), float(value), None) for token, value in zip(tokens, logqs, strict=True) if value > -math.inf]
            if logqs[0] >= self._floor
            else []
            for tokens, logqs in zip(found[0], found[1], strict=True)
        ]

    @property
    def _floor(self) -> float:
        return math.log(self.shape.min_confidence) if self.shape.min_confidence else -math.inf

    def _family(self, sprout: Sprout, node: int, row: Tensor) -> list[Child]:
        context = sprout.request.context
        prefix = partial(_ids, context, [sprout.tokens[other] for other in sprout.path(node)])
        own = self.vocabulary
        if self.rule.processors:  # they speak of the target's ids; warpers do as well with fewer
            row, own = own.widen(row), Vocabulary(own.size)
        logits = self.rule.process(row, prefix)
        logq = logits.log_softmax(-1)
        best = float(logq.max())
        if not best >= max(self._floor, -1e30):  # no number, or nothing is left to draw
            return []
        position = len(context.tokens) + sprout.depth(node)
        if self.shape.draw == "sampled":
            return [self._drawn(own, logq, len(sprout.tokens), len(context.tokens))]
        if self.shape.draw == "coupled" and not self.rule.greedy:
            # The target picks with this noise, so what is likely here is likely under the noise.
            logq, own = perturbed(own.widen(logits), self.rule.seed, position).log_softmax(-1), Vocabulary(own.size)
        values, places = logq.topk(min(self.shape.top_k, len(logq)))
        tokens = own.targets(places).tolist()
        return [(t, v, None) for t, v in zip(tokens, values.tolist(), strict=True) if v > -math.inf]

    def _drawn(self, own: Vocabulary, logq: Tensor, node: int, position: int) -> Child:
        if self.rule.greedy:
            q = torch.zeros_like(logq)
            q[logq.argmax()] = 1
        else:
            q = logq.exp()
        q = own.widen(q, 0.0)
        token = draw(q, stream_seed(self.rule.seed, Stream.DRAFT, node), position)
        return token, float(q[token].log()), q


def _ids(context: Context, path: Sequence[int]) -> Tensor:
    """Ids before a token, `(1, T)`."""
    return torch.from_numpy(np.concatenate((context.tokens, np.array(path, dtype=np.int64))))[None]
