"""Answers that are compared with a reference: a number, or a text."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from attrs import frozen

BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d[\d,]*)?(?![\d/])|[-+]?\.\d+")
MOST_DIGITS = 1000  # of a number; a longer one is none
MARK = "####"  # of GSM8K's references: the answer stands behind it


@frozen
class ExactNumber:
    """Whether the number in the last `\\boxed{}`, behind the last `####`, or else the last one of the answer, is the
    reference's last. Exactly: 0.5 is 1/2, and 1,000 is 1000; no rounding. An answer without a number is wrong."""

    def solved(self, answer: str, reference: str) -> bool:
        """Of one problem."""
        found, wanted = last_number(answer), last_number(reference)
        return found is not None and found == wanted

    def formed(self, answer: str) -> bool:
        """Whether there is a number."""
        return last_number(answer) is not None


@frozen
class ExactString:
    """Whether the last line that is not empty (behind the last `####`, if there is one) is the reference, but for white
    space, Unicode forms and, with `ignore_case`, case."""

    ignore_case: bool = False

    def solved(self, answer: str, reference: str) -> bool:
        """Of one problem."""
        return bool(reference.strip()) and self._plain(answer) == self._plain(reference)

    def formed(self, answer: str) -> bool:
        """Whether there is anything."""
        return bool(self._plain(answer))

    def _plain(self, text: str) -> str:
        lines = [line for line in text.rpartition(MARK)[2].splitlines() if line.strip()]
        plain = " ".join(unicodedata.normalize("NFKC", lines[-1] if lines else "").split())
        return plain.casefold() if self.ignore_case else plain


def last_number(text: str) -> Fraction | None:
    """The last number of a text, of its last box if it has one; None where there is none."""
    boxes = BOXED.findall(text)
    where = boxes[-1] if boxes else text.rpartition(MARK)[2]
    numbers = NUMBER.findall(where)
    if not numbers:
        return None
    top, _, bottom = numbers[-1].replace(",", "").replace(" ", "").partition("/")
    if len(top) + len(bottom) > MOST_DIGITS:
        return None
    below = Fraction(bottom) if bottom else Fraction(1)
    return Fraction(top) / below if below else None
