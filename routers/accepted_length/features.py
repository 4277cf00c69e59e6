"""What a place in a text tells about a copy from there: numbers, by name. Knows committed tokens; no hidden states.

Source: Hybrid Verified Decoding (2606.01019), whose regressor sees match, history and token.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field

from draftmux.drafters.ngram.index import NgramIndex, match_length

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = ("word", "digits", "punctuation", "space", "special")
NAMES = ("match", "longest match", "hits", "agreement", "recent", "last", "steps since", "position", *CLASSES)
SCORE = "probe score"  # of a regressor that was trained beside a probe
LONGEST, MOST, RECENT = 32, 16, 4  # tokens of a match, hits that are looked at, copies that are remembered


@define(eq=False)
class Course:
    """One text as it grows: where its last tokens stood before, and what the last copies had accepted."""

    index: NgramIndex
    min_match: int
    prompt_length: int
    recent: deque[int] = field(factory=lambda: deque(maxlen=RECENT))
    since: int = 0  # steps after the last copy

    @classmethod
    def begin(cls, tokens: NDArray[np.int64], prompt_length: int, min_match: int) -> Course:
        """At the end of a prompt."""
        return cls(NgramIndex([min_match], tokens), min_match, prompt_length)

    def note(self, accepted: int | None) -> None:
        """A step: tokens of a copy that were accepted; None if nothing was copied."""
        if accepted is None:
            self.since += 1
        else:
            self.since = 0
            self.recent.append(accepted)

    def features(
        self, tokens: NDArray[np.int64], classes: TokenClasses, score: float | None = None
    ) -> NDArray[np.float64] | None:
        """`(len(NAMES),)`, of the place after `tokens (T,)`; None where nothing can be copied.

        With a probe's `score` one more, its log odds.
        """
        self.index.catch_up(tokens)
        ends = list(islice(self.index.matches(self.min_match), MOST))
        if not ends:
            return None
        lengths = [match_length(tokens, end, LONGEST) for end in ends]
        followers = Counter(int(tokens[end + 1]) for end in ends)
        numbers = [
            float(lengths[0]),
            float(max(lengths)),
            math.log1p(len(ends)),
            followers.most_common(1)[0][1] / len(ends),
            math.log1p(sum(self.recent) / len(self.recent)) if self.recent else 1.0,
            math.log1p(self.recent[-1]) if self.recent else 1.0,
            math.log1p(min(self.since, 64)),
            math.log1p(len(tokens) - self.prompt_length),
        ]
        own = classes.of(int(tokens[-1]))
        odds = [] if score is None else [float(np.clip(math.log((score + 1e-9) / (1 - score + 1e-9)), -10, 10))]
        return np.array([*numbers, *(float(own == name) for name in CLASSES), *odds])


@define(eq=False)
class TokenClasses:
    """Of every token id one of `CLASSES`; all are words where there is no tokenizer."""

    tokenizer: Any = None
    _known: dict[int, str] = field(factory=dict, init=False)

    def of(self, token: int) -> str:
        """Looked up once a token."""
        if token not in self._known:
            self._known[token] = "word" if self.tokenizer is None else self._class(token)
        return self._known[token]

    def _class(self, token: int) -> str:
        if token in (self.tokenizer.all_special_ids or ()):
            return "special"
        text = self.tokenizer.decode([token]).strip()
        if not text:
            return "space"
        if any(character.isdigit() for character in text):
            return "digits"
        return "word" if any(character.isalpha() for character in text) else "punctuation"
