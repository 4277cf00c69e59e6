"""How many nodes a draft may have where its budget leaves that open, or says `auto`.

Knows what a pass costs and which nodes of past drafts were accepted. A budget is settled before its draft is drawn,
from past steps alone (non-anticipation), and no clock has a say in it: the same request gets the same budgets again.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, evolve, field, frozen

from draftmux.errors import DraftmuxError
from draftmux.types import AUTO, UNLIMITED, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from draftmux.engine.session import Session
    from draftmux.types import Step

AFFORDABLE = 1.5  # cost of a pass, relative to plain decoding, up to which open drafts grow
NODE_STEPS = (3, 7, 15, 31, 63, 127)
MOST = 207  # nodes of the largest `auto` draft; with the root, the largest pass that is measured
MEMORY = 24  # steps after which what was seen counts 1/e
PROBE = 32  # steps after which a drafter gets once more what a fresh one gets
PRIOR = 2.0  # what is believed beforehand counts as so many observations
START = 0.8  # of a fresh drafter's nodes, each is believed to be accepted so often after the one before
NEAR = 0.01  # tokens a step that are no difference: then the larger draft is taken
DEPTHS = np.arange(1, MOST + 1)


def affordable_nodes(cost: Callable[[int], float]) -> int:
    """Nodes of an open budget: as many as cost at most half of a plain step more."""
    plain = cost(0)
    return max((size for size in NODE_STEPS if cost(size) <= AFFORDABLE * plain), default=NODE_STEPS[0])


def relative_costs(cost: Callable[[int], float]) -> NDArray[np.float64]:
    """Cost of a pass over 0 to MOST nodes, `(MOST+1,)`, in plain steps; DraftmuxError when it is not measured right."""
    costs: NDArray[np.float64] = np.array([cost(nodes) for nodes in range(MOST + 1)], dtype=np.float64)
    if not (np.isfinite(costs) & (costs > 0)).all():
        wrong = int((~(np.isfinite(costs) & (costs > 0))).argmax())
        raise DraftmuxError(
            f"the backend says that a pass over {wrong} nodes takes {costs[wrong]} s; `max_nodes: auto` needs finite "
            "times above 0. The backend is at fault; give a number instead"
        )
    relative: NDArray[np.float64] = costs / costs[0]
    return relative


def best_size(chances: NDArray[np.float64], costs: NDArray[np.float64], rate: float) -> int:
    """Nodes n that gain most: `Σ chances[:n] - rate · costs[n]`; of near ties, the most.

    `chances (M,)`: acceptance by node; `costs (M+1,)` in plain steps; `rate`: tokens a plain step's time is worth,
    which is what the request has made of its time so far. Sums over steps are then maximal, unlike under the best
    ratio of each step by itself.
    """
    gains = np.concatenate(([0.0], np.cumsum(chances))) - rate * costs
    return int(np.flatnonzero(gains >= gains.max() - NEAR)[-1])


def _zeros() -> NDArray[np.float64]:
    return np.zeros(MOST)


@define(eq=False)
class Seen:
    """Drafts of one drafter in one request: by node how many had it and how many got it accepted. Old ones fade."""

    drafted: NDArray[np.float64] = field(factory=_zeros)
    accepted: NDArray[np.float64] = field(factory=_zeros)
    runs: float = 0.0  # accepted nodes
    breaks: float = 0.0  # drafts that were refused somewhere
    waited: int = 0  # steps since the last probe

    def fade(self) -> None:
        """One step later. What fades gives way to what a fresh drafter is believed to do."""
        keep = 1 - 1 / MEMORY
        self.drafted *= keep
        self.accepted *= keep
        self.runs *= keep
        self.breaks *= keep
        self.waited += 1

    def learn(self, step: Step) -> None:
        """Count a draft that was scored."""
        path = step.acceptance.path
        self.drafted[: len(step.draft)] += 1
        self.accepted[[node for node in path if node < MOST]] += 1
        self.runs += len(path)
        self.breaks += len(path) < int(step.draft.depths.max())
        if self.waited > PROBE:
            self.waited = 0

    def chances(self) -> NDArray[np.float64]:
        """Acceptance by node, `(MOST,)`. Nodes that were never drafted go on as those before them."""
        going_on = (self.runs + PRIOR * START) / (self.runs + self.breaks + PRIOR)
        result: NDArray[np.float64] = (self.accepted + PRIOR * going_on**DEPTHS) / (self.drafted + PRIOR)
        return result


@define(eq=False)
class Pace:
    """What one request has made of its time so far, and the sizes that follow. Dies with the request."""

    costs: NDArray[np.float64]  # (MOST+1,), in plain steps
    _tokens: float = field(default=1.0, init=False)
    _time: float = field(default=1.0, init=False)
    _seen: dict[str, Seen] = field(factory=dict, init=False)

    def nodes(self, drafter: str) -> int:
        """The largest draft whose last rows still pay. Now and then, what a fresh drafter gets, and at least one."""
        seen = self._seen.setdefault(drafter, Seen())
        size = best_size(seen.chances(), self.costs, self._tokens / self._time)
        if seen.waited >= PROBE:
            size = max(size, 1, best_size(Seen().chances(), self.costs, 1.0))
        return size

    def learn(self, step: Step) -> None:
        """Count a step, whoever drafted."""
        keep = 1 - 1 / MEMORY
        self._tokens = keep * self._tokens + 1 + len(step.acceptance.path)
        self._time = keep * self._time + float(self.costs[min(len(step.draft), MOST)])
        for name, seen in self._seen.items():
            seen.fade()
            if name == step.drafter:
                seen.learn(step)


@frozen(eq=False)
class Allowance:
    """What one backend's costs allow. `cost(nodes)`: seconds of a pass; asked only when a budget gives no number."""

    cost: Callable[[int], float]

    def budget(self, session: Session, drafter: str, asked: Budget) -> Budget:
        """What a drafter may draft now: what the router asked for, by number or not, cut to the length limit."""
        return session.budget(evolve(asked, max_nodes=self._nodes(session, drafter, asked.max_nodes)))

    def _nodes(self, session: Session, drafter: str, asked: int) -> int:
        if asked < AUTO:
            return asked
        if asked >= UNLIMITED:
            return self._affordable
        session.pace = session.pace or Pace(self._costs)
        return session.pace.nodes(drafter)

    @cached_property
    def _affordable(self) -> int:
        return affordable_nodes(self.cost)

    @cached_property
    def _costs(self) -> NDArray[np.float64]:
        return relative_costs(self.cost)
