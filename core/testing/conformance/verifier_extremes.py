"""A check of single decisions where arithmetic is at its ends: q that underflows, laws of one token, p of 0 at drafted
tokens, logits in float32 under a q in float64. Knows the rule that what has no chance cannot stand, and no more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from draftmux.engine.guard import checked_acceptance
from draftmux.generation import Generation
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import said
from draftmux.testing.conformance.verifier_cases import SIZE, SamplerSpy, sampler_of
from draftmux.testing.targets import hash_law
from draftmux.tree import ROOT
from draftmux.types import Draft

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from draftmux.sampling import Sampler
    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Acceptance

BANNED = 4
SEEDS = range(2)
CHAIN, TREE = (-1, 0, 1), (-1, -1, 0, 1)
# The share that q gives a drafted token, and its dtype; 1 is a law of one token.
SHARES = ((1e-300, "float64"), (1e-50, "float64"), (1e-44, "float32"), (1.0, "float32"))
SETTINGS = (
    Generation(bad_word_ids=[[BANNED]]),
    Generation(temperature=1.0, bad_word_ids=[[BANNED]]),
)


@frozen(eq=False)
class Extreme:
    """A decision to be made. `logits (N+1, V)` are those of the target, in float32."""

    said: str
    draft: Draft
    logits: Any
    generation: Generation

    def sampler(self, seed: int) -> Sampler:
        """A fresh one."""
        return sampler_of(self.draft, self.generation, seed, self.logits)


def extreme_laws(subject: Subject) -> None:
    """Lossless: where q is as good as 0, p is 0 at a drafted token, or either has all on one token, no token stands
    that has no chance, and greedy each is the target's own."""
    if not subject.plugin.lossless:
        raise NotApplicableError("it says that it is lossy")
    bound = subject.bind(subject.scenes[0].target)
    for case, seed in itertools.product(cases(subject.plugin.accepts.tree), SEEDS):
        spy = SamplerSpy(case.sampler(seed))
        try:
            found = bound.accept(spy.context, case.draft, spy.scores, spy)
            assert not spy.broken, f"it asks {spy.broken[0]}"
            _check(checked_acceptance(found, case.draft, SIZE), case, case.sampler(seed))
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(f"{case.said}, seed {seed}: {kind}{error}") from error


def _check(acceptance: Acceptance, case: Extreme, sampler: Sampler) -> None:
    above = ROOT
    tokens = [*case.draft.tokens[list(acceptance.path)].tolist(), acceptance.token]
    for node, token in zip((*acceptance.path, ROOT), tokens, strict=True):
        chance = float(sampler.p(above)[token])
        where = "the root" if above == ROOT else f"node {above}"
        assert chance > 0, f"after {where} token {token} stands, and p gives it no chance"
        if case.generation.greedy:
            assert token == sampler.pick(above), f"after {where} token {token} stands, not {sampler.pick(above)}"
        above = node


def cases(tree: bool) -> Iterator[Extreme]:
    """Every shape of draft with every kind of p, of q and of drafted tokens."""
    shapes = (CHAIN, TREE) if tree else (CHAIN,)
    for parents, name, (share, dtype), generation in itertools.product(shapes, ("", *ROWS), SHARES, SETTINGS):
        rows = _rows(name, len(parents) + 1)
        for kind, tokens in _tokens(rows, parents).items():
            draft = Draft(tokens, parents, _q(tokens, share, dtype))
            about = (
                f"{kind} drafted (tokens {said(tokens)}, parents {said(parents)}), q {share:g} there in {dtype}, p "
                f"{name or 'as it comes'} in float32, temperature {generation.temperature}, token {BANNED} banned"
            )
            yield Extreme(about, draft, _tensor(rows), generation)


def _one_token(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """All on one token, by logits so far apart that the rest is 0."""
    return np.where(np.arange(SIZE) == _best(row), np.float32(200), np.float32(0))


def _two_tokens(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isin(np.arange(SIZE), (1, 6)), row, np.float32(-math.inf))


ROWS = {"on one token": _one_token, "on two tokens": _two_tokens}


def _rows(kind: str, count: int) -> NDArray[np.float32]:
    plain = np.array([hash_law(number, SIZE)((0,)) for number in range(count)], dtype=np.float32)
    return np.stack([ROWS[kind](row) for row in plain]) if kind else plain


def _tokens(rows: NDArray[np.float32], parents: tuple[int, ...]) -> dict[str, list[int]]:
    """What is drafted: the banned token, what the target likes best, one after the other."""
    return {
        "the banned token": [BANNED] * len(parents),
        "the best tokens": [_best(rows[parent + 1]) for parent in parents],
        "all kinds of tokens": [(3 + 5 * node) % SIZE for node in range(len(parents))],
    }


def _best(row: NDArray[np.float32]) -> int:
    return max((token for token in range(SIZE) if token != BANNED), key=lambda token: float(row[token]))


def _q(tokens: list[int], share: float, dtype: str) -> Any:
    import torch

    q = torch.full((len(tokens), SIZE), (1 - share) / (SIZE - 1), dtype=getattr(torch, dtype))
    q[range(len(tokens)), tokens] = share
    return q


def _tensor(rows: NDArray[np.float32]) -> Any:
    import torch

    return torch.from_numpy(rows)
