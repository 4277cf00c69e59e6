"""How an arbiter is trained: options of `draftmux train arbiter`. Imports no torch."""

from __future__ import annotations

from typing import Any

from attrs import asdict, frozen

from draftmux.options import option
from draftmux.training.recipe import Schedule

LATER = ("rate", "chosen", "group", "resample", "updates", "advantage", "credit", "probe")  # of stage 2 alone
HOW_FAST = ("steps", "batch", "every", "patience")  # what may differ when a run goes on


@frozen
class ArbiterRecipe:
    """What decodes, what the arbiter is, and how it learns labels (stage 1) and from whole decodings (stage 2)."""

    max_new_tokens: int = option("tokens of an answer at most", default=256, minimum=2)
    batch: int = option("answers decoded at once", default=64, minimum=1)
    held_out: float = option(
        "share of problems kept for figures and the threshold", default=0.1, minimum=0.01, maximum=0.9
    )
    window: int = option("tokens of context that the arbiter reads at most", default=1024, minimum=1)
    features: bool = option("let it read log-probabilities, entropy and rank beside its states", default=True)
    rank: int = option("of the LoRA", default=32, minimum=1, maximum=4096)
    alpha: int = option("of the LoRA: its product is multiplied by alpha / rank", default=64, minimum=1)
    segment_only_lora: bool = option(
        "adapt what stands behind the context alone: the arbiter then reads the draft model's own keys and values of "
        "the context, all of it, whatever `window` says",
        default=False,
    )
    mismatches: int = option("mismatches of a problem that are labelled, at most", default=4, minimum=1)
    rows: int = option("blocks of a batch", default=64, minimum=1)
    warmup_steps: int = option("optimizer steps of stage 1; 0 leaves it out", default=1000, minimum=0)
    warmup_rate: float = option("learning rate of stage 1, of the LoRA", default=2e-4, minimum=1e-8, maximum=1)
    head_rate: float = option("and of the head", default=1e-3, minimum=1e-8, maximum=1)
    steps: int = option("steps of stage 2; 0 leaves it out", default=400, minimum=0)
    rate: float = option("learning rate of stage 2", default=1e-5, minimum=1e-9, maximum=1)
    chosen: int = option("problems of a step of stage 2", default=16, minimum=1)
    group: int = option("rollouts of each (G)", default=8, minimum=2)
    resample: int = option(
        "times that a problem whose rollouts teach nothing, all earning the same, gives its place in a step to another",
        default=0,
        minimum=0,
    )
    updates: int = option("updates on the rollouts of one step of stage 2", default=1, minimum=1)
    clip: float = option("norm that gradients are clipped to", default=1.0, minimum=1e-6)
    advantage: str = option(
        "of groups with right and wrong rollouts: mixed_scaled, by sign; centred, like all others",
        default="mixed_scaled",
        choices=("mixed_scaled", "centred"),
    )
    credit: str = option(
        "which decisions learn in stage 2: consulted, those that took effect; all, also those that were drawn behind a "
        "refusal and had none",
        default="consulted",
        choices=("consulted", "all"),
    )
    precision: str = option("number format of products while learning", default="no", choices=("no", "bf16"))
    every: int = option("steps of stage 2 from one look at held-out problems to the next", default=25, minimum=1)
    probe: int = option("held-out problems of such a look", default=128, minimum=1)
    patience: int = option(
        "looks in a row that are worse than the target alone before stage 2 ends", default=3, minimum=1
    )
    seed: int = option("of weights, rollouts and orders", default=0, minimum=0, maximum=2**31)

    @property
    def schedule(self) -> Schedule:
        """Of stage 1."""
        shares = {"network.head.": self.head_rate / self.warmup_rate}
        ramp = max(1, self.warmup_steps * 3 // 100)
        return Schedule(self.warmup_steps, self.warmup_rate, ramp, self.clip, self.precision, shares=shares)

    @property
    def kept_of_warmup(self) -> dict[str, Any]:
        """The same for stage 1 alone: several runs of stage 2 may begin with one of its states."""
        return {name: value for name, value in self.kept.items() if name not in LATER}

    @property
    def kept(self) -> dict[str, Any]:
        """What another run must have alike to go on with this one's weights."""
        return {name: value for name, value in asdict(self).items() if name not in HOW_FAST}


@frozen
class Objective:
    """Constants of stage 2's loss."""

    temperature: float = option(
        "of exploration (T_e): decisions are drawn from sigmoid(logit / T_e)", default=1.0, minimum=1e-3, maximum=1e3
    )
    clip_low: float = option(
        "how far below 1 the ratio of new to old policy may count", default=0.2, minimum=0, maximum=1
    )
    clip_high: float = option("and how far above", default=0.2, minimum=0)
    beta: float = option("weight of the divergence from the warm-up policy", default=1e-3, minimum=0, maximum=1e3)
    entropy_bonus: float = option("weight of the entropy", default=0.0, minimum=0, maximum=1e3)
    mean: str = option(
        "over what: all decisions of the batch (dapo), or those of a rollout and then rollouts (grpo)",
        default="dapo",
        choices=("dapo", "grpo"),
    )
