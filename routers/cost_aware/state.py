"""What the router remembers of one sequence."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from draftmux.counterfactual import Counterfactuals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftmux.drafters.ngram.index import NgramIndex
    from draftmux.routers.cost_aware.estimates import Estimates
    from draftmux.types import Draft

ROUNDS = 64  # steps that the worth of time is taken from


@frozen
class Asked:
    """A draft that was asked for: of which drafter, at what kind of place, within what."""

    drafter: str
    kind: int
    branches: int
    depth: int


@define(eq=False)
class Run:
    """The router's state for one sequence. `played`: drafters that were asked for its draft, tokens and nodes of a step
    whose seconds are not known yet; `waited`: steps since each drafter was asked; `asks`: of each drafter; `levels`: of
    each one's drafts that were not empty, their sum and number."""

    estimates: dict[str, Estimates]
    index: NgramIndex
    waited: dict[str, int]
    rate: float  # tokens that a second is worth: what the last steps made of theirs; at first, what plain decoding does
    shared: Mapping[str, Estimates]  # learn the same, for requests to come
    kind: int = 0
    remaining: int = 0
    choosing: bool = False  # a choice was made whose step has not come yet
    drafts: Counterfactuals = field(factory=Counterfactuals)
    asked: dict[int, Asked] = field(factory=dict)
    number: int = 0
    played: tuple[tuple[str, ...], int, int] | None = None
    recent: deque[tuple[int, float]] = field(factory=lambda: deque(maxlen=ROUNDS))  # tokens and seconds of steps
    asks: Counter[str] = field(factory=Counter)
    levels: dict[str, tuple[float, int]] = field(factory=dict)
    whole: dict[str, Draft] = field(factory=dict)  # drafts of this step that were trimmed, as they were
