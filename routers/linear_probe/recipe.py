"""How a probe is trained: options of `draftmux train probe`. Imports no torch."""

from __future__ import annotations

from typing import Any

from attrs import asdict, frozen

from draftmux.drafters.ngram import LONGEST, MOST
from draftmux.options import option
from draftmux.routers.linear_probe.labels import Labelling
from draftmux.routers.replays import Copying
from draftmux.training.recipe import Answers
from draftmux.types import TAP_KINDS


@frozen
class ProbeRecipe:
    """Answers of the target, labels, hidden states, and which of them are for what."""

    max_new_tokens: int = option("tokens of an answer at most", default=256, minimum=2)
    samples: int = option("sampled answers to a prompt, beside a greedy one", default=3, minimum=0, maximum=100)
    temperature: float = option("of those", default=0.7, minimum=1e-8)
    batch: int = option("answers generated at once", default=32, minimum=1)
    labels: str = option(
        "what is learned: which tokens repeat an earlier stretch (SwitchSD); or, where a copy is offered, whether the "
        "text follows it",
        default="repeats",
        choices=("repeats", "copies"),
    )
    follows: int = option(
        "tokens that a text must follow a copy for, with labels of copies", default=5, minimum=1, maximum=MOST
    )
    label_size: int = option(
        "tokens that must repeat an earlier stretch to be copied ones", default=5, minimum=1, maximum=LONGEST
    )
    min_match: int = option(
        "tokens that must have occurred before, for a copy (kappa)", default=5, minimum=1, maximum=LONGEST
    )
    max_branches: int = option("continuations that a copy offers (W)", default=10, minimum=1, maximum=MOST)
    max_depth: int = option("tokens of each (D)", default=20, minimum=1, maximum=MOST)
    examples: int = option("hidden states to learn from and to choose by, over all answers", default=60000, minimum=100)
    refit: int = option(
        "hidden states that the best layer and state of each shift are fitted to once more", default=400000, minimum=100
    )
    kinds: str = option("which states of a layer to try", default="all", choices=("all", *TAP_KINDS))
    every: int = option("try every so many layers", default=1, minimum=1)
    validation: float = option(
        "share of prompts that layer, state, shift, penalty and threshold are chosen by", default=0.18, minimum=0.01
    )
    test: float = option("share of prompts that are reported on, and used for nothing else", default=0.1, minimum=0.01)
    seed: int = option("of sampled answers and of which states are looked at", default=0)

    def __attrs_post_init__(self) -> None:
        if self.validation + self.test > 0.9:
            raise ValueError(f"--validation and --test leave too little: {self.validation} + {self.test} of all")

    def answers(self, number: int) -> Answers:
        """How the `number`-th answers are made; 0: greedily."""
        return Answers(
            max_new_tokens=self.max_new_tokens,
            sampled=float(number > 0),
            temperature=self.temperature,
            batch=self.batch,
            answer_seed=self.seed + 1_000_003 * number if number else 0,  # greedy ones are the same for all seeds
        )

    @property
    def copying(self) -> Copying:
        """The copies that are offered."""
        return Copying(self.min_match, self.max_branches, self.max_depth)

    def labelling(self, never: frozenset[int]) -> Labelling:
        """What states are labelled by; a stretch with a token of `never` repeats nothing."""
        return Labelling(self.labels, self.label_size, self.copying, self.follows, never)

    @property
    def kept(self) -> dict[str, Any]:
        """For the probe's file."""
        return asdict(self)
