"""Checks of drafters that sample: `q` is the law that each token was drawn from, whatever became of the draft.

Source of the rule: a token may be submitted or not by all that was known before it was drawn, and by nothing after.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.noise import Stream, stream_seed, uniform
from draftmux.testing.conformance.drafter_draws import (
    DRAWS,
    FEW,
    NEVER,
    NODES,
    SURE,
    Drawn,
    courses,
    drawn,
    needs_q,
    rows,
    together,
    too_often,
)
from draftmux.testing.conformance.report import NotApplicableError
from draftmux.testing.conformance.scenes import said

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from draftmux.testing.conformance.drafter_draws import Courses
    from draftmux.testing.conformance.subject import Subject
    from draftmux.types import Draft

LEAST = 5  # expected draws of one cell of a chi-square


def non_anticipation(subject: Subject) -> None:
    """Over many seeds, each submitted token is distributed as its row of q says, given all that was drawn before it: so
    no token was looked at before it was submitted, and q is the law it was really drawn from."""
    needs_q(subject)
    for course in courses(subject):
        laws: dict[Hashable, Any] = {}
        counted: dict[Hashable, Counter[int]] = defaultdict(Counter)
        for drafts in course.drafts:
            _note(drafts[0], laws, counted)
        where = f"on {course.where}, after {said(course.contexts[0].tokens)}, {DRAWS} seeds"
        for key, counts in counted.items():
            _check(counts, laws[key], f"{where}: {_place(key)}")
    _check_siblings([drafts[0] for course in courses(subject) for drafts in course.drafts])


def fresh_noise(subject: Subject) -> None:
    """Its draws do not depend on the numbers with which verifiers decide, draw what follows a rejection, or pick the
    target's own token: those must be fresh, and the last come up again at the next step. `Stream.DRAFT` is free."""
    needs_q(subject)
    decisive: dict[tuple[int, int], list[float]] = defaultdict(list)
    after: dict[int, list[float]] = defaultdict(list)
    own: dict[int, list[float]] = defaultdict(list)
    for seed, draw in _firsts(courses(subject)[0]):
        for node in range(NODES):
            number = uniform(stream_seed(seed, Stream.ACCEPT), draw.root, node + 1)
            decisive[draw.node, node].append((draw.place - 0.5) * (number - 0.5))
        after[draw.node].append(_gumbel(stream_seed(seed, Stream.RESIDUAL), draw.root, draw.token))
        own[draw.node].append(_gumbel(seed, draw.root + draw.depth - 1, draw.token))
    if max(map(len, after.values()), default=0) < FEW:
        raise NotApplicableError("it hardly draws anything here")
    for (node, tested), terms in decisive.items():
        off = together(terms)
        what = f"the number that accepts {'it' if tested == node else f'node {tested}'}"
        assert off < SURE, f"the draw of node {node} goes along with {what} ({off:.0f} standard deviations)"
    for what, numbers in (("the draw after a rejection", after), ("the target's own draw", own)):
        for node, noise in numbers.items():
            off = abs(float(np.mean(noise)) - np.euler_gamma) * math.sqrt(6 * len(noise)) / math.pi
            assert len(noise) < FEW or off < SURE, (
                f"the draw of node {node} goes along with {what} ({off:.0f} standard deviations)"
            )


def independent_draws(subject: Subject) -> None:
    """Over many seeds, no draw goes along with that of another node of the draft, or with one of an earlier step: each
    node of each step has noise of its own."""
    needs_q(subject)
    course = courses(subject)[0]
    pairs: dict[tuple[str, str], list[tuple[Drawn, Drawn]]] = defaultdict(list)
    for drafts in course.drafts:
        for one, two in itertools.combinations(drawn(course, drafts), 2):
            pairs[str(one), str(two)].append((one, two))
    if max(map(len, pairs.values()), default=0) < FEW:
        raise NotApplicableError("it hardly ever draws two tokens here")
    for (first, second), found in pairs.items():
        off = together([(one.place - 0.5) * (two.place - 0.5) for one, two in found])
        told = f"the draws of {first} and of {second} go together over {len(found)} seeds"
        assert off < SURE, f"{told}: their places in their laws by {off:.0f} standard deviations"
        chances = [float(two.row[one.token]) for one, two in found]
        equal = sum(one.token == two.token for one, two in found)
        assert not too_often(equal, chances), f"{told}: {equal} are the same token, and q says {sum(chances):.0f}"


def _firsts(course: Courses) -> Iterator[tuple[int, Drawn]]:
    """Every draw of the first step, and its seed."""
    for seed, drafts in zip(course.seeds, course.drafts, strict=True):
        yield from ((seed, draw) for draw in drawn(course, drafts) if draw.step == 0)


def _gumbel(seed: int, position: int, token: int) -> float:
    return -math.log(-math.log(uniform(seed, position, token)))


def _check_siblings(drafts: Sequence[Draft]) -> None:
    """A token meets the tokens of earlier siblings as often as its row says: none, if they were taken out of it."""
    count, expected, spread = 0, 0.0, 0.0
    for draft in drafts:
        table = rows(draft)
        for siblings in draft.siblings.values():
            for place, node in enumerate(siblings):
                before = Counter(int(draft.tokens[other]) for other in siblings[:place])
                shares = {token: float(table[node][token]) for token in before}
                mean = sum(times * shares[token] for token, times in before.items())
                count += before[int(draft.tokens[node])]
                expected += mean
                spread += sum(times**2 * shares[token] for token, times in before.items()) - mean**2
    never = count == 0 and expected > NEVER
    off = abs(count - expected) / math.sqrt(spread) if spread > NEVER else 0.0
    assert not never and off < SURE, (
        f"siblings are the same token {count} times in {len(drafts)} drafts, and their rows of q say {expected:.0f}; "
        "drawn without replacement, each row is the law without the tokens that were drawn before"
    )


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
