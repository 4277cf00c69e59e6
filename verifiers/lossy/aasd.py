"""AASD's conditional verification: a threshold on p that falls where the target is unsure. Lossy, and in part ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.options import option
from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifiers.lossy.judging import entropy, longest, open_law
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from torch import Tensor

    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class Aasd(BaseVerifier):
    """A drafted token x stands if p(x) >= min(max p, max(floor, beta - alpha H)), H the entropy of p in nats.

    Known of the paper: drafts are copied from the prompt and widened by the target's own laws there (alignment
    sampling: a drafter's part, not this one's), and a copied token stands from a probability on that adapts to the
    entropy of the target's law (conditional verification). Our reading, since the authors' code is not public: the
    straight line with its cap at max p, and alpha, follow a third party's port, which gives 0.1 for both alpha and
    beta; that line is below 0 from one nat on, where it would let everything pass, so `floor` and the default of beta
    are ours. So is all the rest: p is the law before a token is chosen (sampling, the law that is sampled from; at
    temperature 0 taken at temperature 1, and the rule stays lossy); a banned token never stands; in a tree the longest
    branch is taken, of equally long ones the likeliest; after it comes the target's own pick.

    Source: Wang et al., "Alignment-Augmented Speculative Decoding with Alignment Sampling and Conditional
    Verification" (2505.13204).
    """

    lossless: ClassVar[bool] = False

    alpha: float = option("how much a nat of entropy lowers the threshold", default=0.1, minimum=0)
    beta: float = option("threshold where the target is sure: at entropy 0", default=0.3, minimum=0, maximum=1)
    floor: float = option(
        "least threshold; only the likeliest token may stand below it", default=0.1, minimum=0, maximum=1
    )

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """The longest branch above its thresholds, and the pick after it."""
        path = longest(draft, lambda node: open_law(node, sampler), self._stands)
        return Acceptance(path, sampler.pick(path[-1] if path else ROOT))

    def _stands(self, law: Tensor, chances: Tensor) -> Tensor:
        threshold = (self.beta - self.alpha * entropy(law)).clamp_min(self.floor)
        return chances >= threshold.minimum(law.max())
