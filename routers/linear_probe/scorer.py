"""A probe at work: the score of the newest hidden state, read with every pass of the target."""

from __future__ import annotations

import hashlib
import math
import warnings
from typing import TYPE_CHECKING, Any

from attrs import asdict, define, field

from draftmux.errors import ModelError
from draftmux.protocols import Resources
from draftmux.routers.linear_probe.artefact import About, read_about, read_weight
from draftmux.types import Context, Needs, Reading, Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from draftmux.protocols import BoundBackend


def states_for(probe: str, revision: str | None) -> Needs:
    """The state that a probe reads; none while it is not at hand."""
    about = read_about(probe, revision, download=False)
    return Needs() if about is None else Needs(taps=(Tap.parse(about.tap),))


def load_scorer(probe: str, revision: str | None, resources: Resources) -> tuple[Scorer, About]:
    """ModelError when the probe is unreadable, or was trained for another target."""
    about = read_about(probe, revision)
    if about is None:
        raise ModelError(f"probe '{probe}' cannot be read")
    refuse_other_target(f"probe '{probe}'", about, resources)
    return Scorer(Tap.parse(about.tap), read_weight(probe, about, revision)), about


def refuse_other_target(what: str, about: About, resources: Resources) -> None:
    """ModelError unless the target is the one that a probe was trained for."""
    from draftmux.models.fingerprint import refuse_other

    model: Any = getattr(resources.backend, "model", None)
    if model is None:
        raise ModelError(
            f"{what} is for one target's hidden states, and this target's model cannot be looked at: it is no "
            f"transformers model, or several processes share it. Use another router"
        )
    refuse_other(what, asdict(about), model)
    if "float16" in str(model.dtype) and "bfloat16" not in str(model.dtype):
        warnings.warn(
            f"{what} was trained for {about.target}; whether this is it cannot be told of a target in float16, whose "
            f"smallest numbers have fewer bits. Set `dtype: bfloat16` to have it checked",
            stacklevel=2,
        )
    size = model.config.get_text_config(decoder=True).hidden_size
    if size != about.hidden_size:
        raise ModelError(f"{what} is for states of {about.hidden_size} numbers; the target's have {size}")


@define(eq=False)
class Scorer:
    """A probe at hand: `weight (d,)` in float32 for the states of `tap`."""

    tap: Tap
    weight: Tensor
    reading: Reading = field(init=False)
    _there: dict[Any, Tensor] = field(factory=dict, init=False)  # the same on the devices that states come from

    def __attrs_post_init__(self) -> None:
        self.reading = Reading(self.tap, self.scores)

    def scores(self, states: Tensor) -> Tensor:
        """`sigmoid(w · h)` of every row h of `states (rows, d)`: `(rows,)`."""
        weight = self._there.get(states.device)
        if weight is None:
            weight = self._there.setdefault(states.device, self.weight.to(states.device))
        return (states.float() @ weight).sigmoid()

    def score(self, context: Context) -> float:
        """That of the last position that has been through the target; 0 without one."""
        score = context.readings.get(self.reading, math.nan)
        return 0.0 if math.isnan(score) else score


def mark_of(weight: Tensor) -> str:
    """What tells a probe from all others: a hash of its weights."""
    return hashlib.sha256(weight.float().cpu().contiguous().numpy().tobytes()).hexdigest()


def unseen_share(probe: str) -> float:
    """The share of prompts that a probe has not learned from; all, should it not say."""
    about = read_about(probe)
    recipe = {} if about is None else dict(about.origin.get("recipe", {}))
    return float(recipe["validation"] + recipe["test"]) if {"validation", "test"} <= recipe.keys() else 1.0


def scores_of(
    probe: str, open_backend: Callable[[tuple[Tap, ...]], BoundBackend]
) -> tuple[Callable[[Sequence[int]], NDArray[np.float64]], str]:
    """What gives a probe's scores of all positions of a text but the last, `(T-1,)`; and the probe's mark."""
    backend = open_backend(states_for(probe, None).taps)
    scorer, _ = load_scorer(probe, None, Resources(backend=backend))

    def scores(ids: Sequence[int]) -> NDArray[np.float64]:
        opened = backend.open(ids)
        backend.close(opened.sequence)
        found: NDArray[np.float64] = scorer.scores(opened.taps[scorer.tap]).double().cpu().numpy()
        return found

    return scores, mark_of(scorer.weight)
