"""What a probe learns: which tokens of a text repeat an earlier stretch of it, and where a copy would have gone on.

Knows token ids alone; nothing of models or probes. Source: SwitchSD (2609.20186), weak labels by verbatim repetition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen

from draftmux.routers.linear_probe.artefact import SHIFTS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from draftmux.routers.replays import Copying

MOST = 64  # occurrences that a copy looks at
GOES_ON = 5  # tokens that a copy must be followed by the text to be one


def repeated(tokens: Sequence[int], size: int, never: Collection[int] = ()) -> NDArray[np.bool_]:
    """Whether a token lies in an exact repeat of `size` or more tokens of the text before it, `(T,)`.

    Stretches with a token of `never` (those of a chat template) repeat nothing. The first tokens of a repeat count too:
    a probe is to know that a copy begins.
    """
    ids = list(tokens)
    marked = np.zeros(len(ids), dtype=np.bool_)
    seen: set[tuple[int, ...]] = set()
    last = -1  # place of the latest token that repeats nothing
    for end in range(len(ids)):
        last = end if ids[end] in never else last
        start = end - size + 1
        if start <= last:
            continue
        gram = tuple(ids[start : end + 1])
        if gram in seen:
            marked[start : end + 1] = True
        seen.add(gram)
    return marked


@frozen
class Hit:
    """A place where the last tokens have occurred before: `root` is the last of them, and `followed` how many tokens
    of the best of the retrieved continuations the text then went along with."""

    root: int
    followed: int

    @property
    def is_copy(self) -> bool:
        """Whether the text went on as before for long enough."""
        return self.followed >= GOES_ON


def hits(tokens: Sequence[int], copying: Copying, first: int, ended: bool = True, enough: int = GOES_ON) -> list[Hit]:
    """Every root from place `first` on whose last tokens occurred before, and how far the text follows what a copy
    would have offered. Of a text that was cut (not `ended`) those are left out that end before it is `enough`."""
    ids, size = list(tokens), copying.min_match
    places: dict[tuple[int, ...], list[int]] = {}
    found = []
    for root in range(size - 1, len(ids)):
        gram = tuple(ids[root - size + 1 : root + 1])
        earlier = places.setdefault(gram, [])
        if earlier and first <= root < len(ids) - 1:
            hit = Hit(root, max(_shared(ids, place + 1, root + 1) for place in _offered(ids, earlier, root, copying)))
            if ended or hit.followed >= enough or root + 1 + hit.followed < len(ids):
                found.append(hit)
        earlier.append(root)
    return found


def _offered(ids: list[int], earlier: Sequence[int], root: int, copying: Copying) -> list[int]:
    """The latest occurrences with different continuations, as many as a copy has branches."""
    branches: dict[tuple[int, ...], int] = {}
    for place in reversed(earlier[-MOST:]):
        branches.setdefault(tuple(ids[place + 1 : min(place + 1 + copying.max_depth, root + 1)]), place)
        if len(branches) == copying.max_branches:
            break
    return list(branches.values())


def _shared(ids: Sequence[int], one: int, two: int) -> int:
    """Length of the common run from two places on; the first, earlier one ends where the second begins, as a copy does
    that offers what there is."""
    length = 0
    while one + length < two and two + length < len(ids) and ids[one + length] == ids[two + length]:
        length += 1
    return length


@frozen(eq=False)
class Labelling:
    """What states are labelled by.

    `repeats`: whether a token lies in an exact repeat of `size` tokens or more, for the token that a state has read and
    the two after it (SwitchSD). `copies`: only where a copy is offered, and whether the text follows it for `follows`
    tokens or more; the state is the one that is there when this is decided.
    """

    kind: str
    size: int
    copying: Copying
    follows: int
    never: frozenset[int]

    @property
    def shifts(self) -> tuple[int, ...]:
        """The token after the state's own that each column is about."""
        return SHIFTS if self.kind == "repeats" else SHIFTS[-1:]

    def of(self, ids: Sequence[int], prompt_length: int, ended: bool) -> NDArray[np.int8]:
        """`(T - 2, shifts)`: for the state of every position that has all labels, those labels; -1 where none are."""
        count = len(ids) - max(SHIFTS)
        if self.kind == "repeats":
            marked = repeated(ids, self.size, self.never).astype(np.int8)
            return np.stack([marked[shift : shift + count] for shift in SHIFTS], axis=1)
        found = np.full((count, 1), -1, dtype=np.int8)
        for hit in hits(ids, self.copying, prompt_length, ended, self.follows):
            found[hit.root - 1] = hit.followed >= self.follows
        return found
