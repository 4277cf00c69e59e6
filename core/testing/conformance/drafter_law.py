"""Checks of drafters that sample: `q` is the law that each token was drawn from, whatever became of the draft.

Source of the rule: a token may be submitted or not by all that was known before it was drawn, and by nothing after.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from draftmux.noise import Stream, stream_seed, uniform
from draftmux.protocols import DraftRequest
from draftmux.testing.conformance.players import BUDGET, copied, room, transcripts
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import said
from draftmux.types import Budget

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Context, Draft

DRAWS = 300
FEW = 40  # draws of one law that are enough to judge it
LEAST = 5  # expected draws of one cell of a chi-square
FLAT = 1e-6  # all draws are the same token
SURE = 4.7  # standard deviations: one in a million


def non_anticipation(subject: Subject) -> None:
    """Over many seeds, each submitted token is distributed as its row of q says, given all that was drawn before it: so
    no token was looked at before it was submitted, and q is the law it was really drawn from."""
    _needs_q(subject)
    for scene, played in transcripts(subject)[:2]:
        bound = subject.bind(scene.target)
        for transcript, budget in zip(played[1:3], (BUDGET, Budget(max_nodes=3)), strict=False):
            opening = transcript.contexts[0]
            laws: dict[Hashable, Any] = {}
            drawn: dict[Hashable, Counter[int]] = defaultdict(Counter)
            for seed in range(DRAWS):
                _note(_draft(bound, opening, seed, budget), laws, drawn)
            for key, counts in drawn.items():
                _check(
                    counts, laws[key], f"on {scene.name}, after {said(opening.tokens)}, {DRAWS} seeds: {_place(key)}"
                )


def fresh_noise(subject: Subject) -> None:
    """Its draws do not depend on the numbers with which verifiers decide, draw what follows a rejection, or pick the
    target's own token: those must be fresh, and the last come up again at the next step. `Stream.DRAFT` is free."""
    _needs_q(subject)
    scene, played = transcripts(subject)[0]
    bound, opening = subject.bind(scene.target), played[1].contexts[0]
    places, decisive, after, own = [], [], [], []
    for seed in range(DRAWS):
        draft, root = _draft(bound, opening, seed, BUDGET), len(opening.tokens)
        rows: Any = [] if draft.q is None else np.asarray(draft.q.tolist())
        drawn = next((node for node, row in enumerate(rows) if row.max() < 1 - FLAT), None)
        if drawn is not None:
            row, token, depth = rows[drawn], int(draft.tokens[drawn]), int(draft.depths[drawn])
            places.append(row[:token].sum() + row[token] / 2)
            decisive.append(uniform(stream_seed(seed, Stream.ACCEPT), root, drawn + 1))
            after.append(_gumbel(stream_seed(seed, Stream.RESIDUAL), root, token))
            own.append(_gumbel(seed, root + depth - 1, token))
    if len(places) < FEW or np.ptp(places) < FLAT:
        raise NotApplicableError("it hardly draws anything here")
    off = abs(np.corrcoef(places, decisive)[0, 1]) * math.sqrt(len(places))
    assert off < SURE, f"its first draw goes along with the number that accepts it ({off:.0f} standard deviations)"
    for what, noise in (("the draw after a rejection", after), ("the target's own draw", own)):
        off = abs(np.mean(noise) - np.euler_gamma) * math.sqrt(6 * len(noise)) / math.pi
        assert off < SURE, f"its first draw goes along with {what} ({off:.0f} standard deviations)"


def _gumbel(seed: int, position: int, token: int) -> float:
    return -math.log(-math.log(uniform(seed, position, token)))


def _needs_q(subject: Subject) -> None:
    if not subject.plugin.emits.q:
        raise NotApplicableError("emits.q is False: its drafts are point masses, which may look at anything")


def _draft(bound: Any, opening: Context, seed: int, budget: Budget) -> Draft:
    """What another request with the same text drafts first; its seed and its id are its own."""
    generation = evolve(opening.generation, temperature=0.7, seed=seed)
    context = evolve(copied(opening), generation=generation, request_id=f"seed-{seed}")
    [draft] = bound.propose([DraftRequest(context, bound.begin(context), room(budget, context))])
    return draft  # type: ignore[no-any-return]


def _note(draft: Draft, laws: dict[Hashable, Any], drawn: dict[Hashable, Counter[int]]) -> None:
    """Count every token under what was drawn before it and the law it was drawn from."""
    before: tuple[tuple[int, int], ...] = ()
    for node, (token, parent) in enumerate(zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True)):
        row = np.asarray(draft.q[node].tolist())  # type: ignore[index]
        key = (before, parent, row.round(5).tobytes())
        laws[key] = row
        drawn[key][token] += 1
        before = (*before, (parent, token))


def _place(key: Any) -> str:
    before, parent, _ = key
    after = "the root" if parent < 0 else f"node {parent}"
    return f"node {len(before)}, below {after}, after the draws {[token for _, token in before]}"


def _check(counts: Counter[int], law: NDArray[np.float64], where: str) -> None:
    """The counts are those of draws from `law (V,)`, by a chi-square over the cells that are full enough."""
    total = sum(counts.values())
    if total < FEW:
        return
    expected = law * total
    full = [token for token in range(len(law)) if expected[token] >= LEAST]
    cells = [(counts[token], expected[token]) for token in full]
    rest = (total - sum(count for count, _ in cells), total - sum(mean for _, mean in cells))
    cells += [rest] if rest[1] >= 1 else []
    if rest[1] < 1 and rest[0] > 8:
        raise AssertionError(f"{where}: {rest[0]} of {total} draws are tokens that the law hardly has")
    if len(cells) < 2:
        return
    statistic, freedom = sum((count - mean) ** 2 / mean for count, mean in cells), len(cells) - 1
    if _deviations(statistic, freedom) > SURE:
        count, mean, token = max(
            ((counts[token], expected[token], token) for token in full), key=lambda cell: abs(cell[0] - cell[1])
        )
        raise AssertionError(
            f"{where}: token {token} came {count} times of {total}, and the law says {mean:.0f} "
            f"(chi-square {statistic:.0f} at {freedom} degrees of freedom)"
        )


def _deviations(statistic: float, freedom: int) -> float:
    """A chi-square as standard deviations of a normal law (Wilson, Hilferty, 1931)."""
    spread = 2 / (9 * freedom)
    return float((statistic / freedom) ** (1 / 3) - 1 + spread) / math.sqrt(spread)
