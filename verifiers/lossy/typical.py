"""Typical acceptance: a drafted token stands if the target finds it likely enough for how sure it is. Lossy."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.options import option
from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifiers.lossy.judging import longest
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class Typical(BaseVerifier):
    """A drafted token x stands if p(x) > min(epsilon, delta exp(-H)), H the entropy of p. The longest such branch is
    taken, of equally long ones the likeliest, and after it the target's own pick.

    p is the law that is sampled from: at the request's temperature, after top-k, top-p, min-p, penalties and bans. At
    temperature 0 it is one-hot, and this is exact match. The defaults are those of the public `generate`; its helpers'
    own have the two numbers swapped.

    Source: Cai et al., "Medusa" (2401.10774), section 2.3.1; FasterDecoding/Medusa.
    """

    lossless: ClassVar[bool] = False

    # Below 1, so that a token of probability 1 always stands.
    epsilon: float = option(
        "a token above this probability always stands: the most that is ever asked",
        default=0.09,
        minimum=0,
        maximum=0.99,
    )
    delta: float = option(
        "share of exp(-entropy) that a token needs where the target is unsure", default=0.3, minimum=0, maximum=1
    )

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """The longest typical branch, and the pick after it."""
        path = longest(draft, sampler.p, self._stands)
        return Acceptance(path, sampler.pick(path[-1] if path else ROOT))

    def _stands(self, law: Tensor, chances: Tensor) -> Tensor:
        entropy = -(law * (law + 1e-5).log()).sum()  # the source's own guard against log 0
        return chances > ((-entropy).exp() * self.delta).clamp_max(self.epsilon)
