"""How the regressor is trained: options of `draftmux train accepted-length`. Imports no torch."""

from __future__ import annotations

from typing import Any

from attrs import asdict, frozen

from draftmux.drafters.ngram import LONGEST, MOST
from draftmux.options import option
from draftmux.training.recipe import Answers


@frozen
class RegressorRecipe:
    """Answers of the target, and the copies that are tried along them."""

    max_new_tokens: int = option("tokens of an answer at most", default=256, minimum=2)
    batch: int = option("answers generated at once", default=32, minimum=1)
    min_match: int = option("tokens that must have occurred before, for a copy", default=5, minimum=1, maximum=LONGEST)
    max_branches: int = option("continuations that a copy offers", default=10, minimum=1, maximum=MOST)
    max_depth: int = option("tokens of each", default=20, minimum=1, maximum=MOST)
    penalty: float = option("of ridge regression, over the number of copies", default=1e-3, minimum=0)
    test: float = option("share of prompts that are reported on, and used for nothing else", default=0.1, minimum=0.01)
    long: int = option("accepted tokens from which a copy counts as long in the report", default=6, minimum=1)

    @property
    def answers(self) -> Answers:
        """Greedy ones: along them a copy's length does not depend on who drafts."""
        return Answers(max_new_tokens=self.max_new_tokens, sampled=0.0, batch=self.batch)

    @property
    def kept(self) -> dict[str, Any]:
        """For the regressor's file."""
        return asdict(self)
