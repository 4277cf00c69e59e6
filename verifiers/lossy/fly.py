"""FLy: a mismatch stands if the target was unsure there and agrees with the draft again right after it. Lossy."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from draftmux.options import option
from draftmux.tree import ROOT
from draftmux.types import Acceptance
from draftmux.verifiers.lossy.judging import entropy, open_law
from draftmux.verifying import BaseVerifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftmux.sampling import Sampler
    from draftmux.types import Context, Draft, Scores


@frozen
class Fly(BaseVerifier):
    """Exact match that lets some mismatches pass: where the entropy of the target's law reaches a threshold, and each
    of the next `window_following` drafted tokens is the target's own. There must be more drafted tokens than those, so
    short drafts are verified exactly. The longest branch is taken; of equally long ones that of the fewest mismatches.

    The law is the one before a token is chosen: the softmax of the processed logits (sampling, that is p; at
    temperature 0 it is taken at temperature 1, and the rule stays lossy). A banned token never stands. The entropy is
    summed over the likeliest tokens with their full probabilities, so a very flat law counts as sure. When sampling,
    the target's token is its one seeded draw at that position, as in exact match; the published code draws two and
    takes either, which is biased even without the window. Its tree mode has no entropy threshold; ours has.

    Source: "Training-Free Loosely Speculative Decoding" (2511.22972); AMD-AGI/FLy, whose `win_len` of 6 counts the
    mismatch and 5 more, and which lets no mismatch pass in the last 6 positions.
    """

    lossless: ClassVar[bool] = False

    entropy_threshold: float = option(
        "entropy in nats from which the target counts as unsure; above 1.1 nothing passes with top 3",
        default=0.3,
        minimum=0,
    )
    window_following: int = option("drafted tokens right after a mismatch that must all match", default=5, minimum=0)
    top: int = option("likeliest tokens over which the entropy is summed", default=3, minimum=1)

    def accept(self, context: Context, draft: Draft, scores: Scores, sampler: Sampler) -> Acceptance:
        """The longest branch that passes, and the target's token after it."""
        pick = cache(sampler.pick)

        def matches(node: int) -> bool:
            return int(draft.tokens[node]) == pick(int(draft.parents[node]))

        def passes(node: int, after: Sequence[int]) -> bool:
            return matches(node) or (self._confirmed(after, matches) and self._unsure(node, draft, sampler))

        leaves = [draft.path_to(node) for node in range(len(draft)) if node not in draft.siblings]
        kept = [_prefix(path, passes) for path in leaves]
        best = max(kept, key=lambda path: (len(path), sum(map(matches, path))), default=())
        return Acceptance(best, pick(best[-1] if best else ROOT))

    def _confirmed(self, after: Sequence[int], matches: Callable[[int], bool]) -> bool:
        """Whether the drafted tokens after a mismatch are enough, and go on as the target would."""
        return len(after) > self.window_following and all(map(matches, after[: self.window_following]))

    def _unsure(self, node: int, draft: Draft, sampler: Sampler) -> bool:
        """Whether the target has no clear favourite in place of `node`, and does not rule it out."""
        law = open_law(int(draft.parents[node]), sampler)
        likeliest = law.topk(min(self.top, len(law))).values
        return float(law[int(draft.tokens[node])]) > 0 and float(entropy(likeliest)) >= self.entropy_threshold


def _prefix(path: Sequence[int], passes: Callable[[int, Sequence[int]], bool]) -> tuple[int, ...]:
    """The nodes before the first that does not pass."""
    for place, node in enumerate(path):
        if not passes(node, path[place + 1 :]):
            return tuple(path[:place])
    return tuple(path)
