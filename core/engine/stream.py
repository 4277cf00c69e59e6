"""From token ids to text, piece by piece: whole characters only, and nothing that a stop text could take back."""

from __future__ import annotations

import re
from typing import Any

from attrs import define, field

UNFINISHED = "\ufffd"  # what decoders write for a character whose last bytes are still to come
WINDOW = 16  # ids that are kept to be decoded again with the next one
LEFT = 4  # more than the characters that a cut inside a character can spoil: it leaves 3 bytes at most
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")  # how vocabularies that fall back to bytes spell one


@define(eq=False)
class Detokenizer:
    """Decodes one sequence's new tokens. The pieces add up to the decoder's text of all of them.

    Decoders look left, so a token is decoded with those before it, as many as the window holds: time per token does not
    grow with the text.
    """

    tokenizer: Any
    _ids: list[int] = field(factory=list, init=False)  # the window
    _taken: int = field(default=0, init=False)  # characters of the window's text that are released or held
    _held: str = field(default="", init=False)  # certain, but the piece they are part of ends in half a character
    _special: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        self._special = frozenset(token for token, entry in added.items() if entry.special)

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is unfinished."""
        if token in self._special and not self._decode([token]):
            return ""  # decoders pass over it, even inside a character
        self._ids.append(token)
        # A run of fallback bytes is decoded as a whole: a wrong byte spoils all characters of the run.
        return "" if _BYTE.fullmatch(str(self.tokenizer.convert_ids_to_tokens(token))) else self._release()

    def flush(self) -> str:
        """What is left, unfinished characters included."""
        text = self._decode(self._ids)
        piece, self._held, self._taken = self._held + text[self._taken :], "", len(text)
        return piece

    def _release(self) -> str:
        text = self._decode(self._ids)
        certain = max(self._taken, len(text) - text.endswith(UNFINISHED))
        self._held += text[self._taken : certain]
        self._taken = certain
        if len(self._ids) > WINDOW:
            self._cut(len(text))
        if text.endswith(UNFINISHED):
            return ""
        piece, self._held = self._held, ""
        return piece

    def _cut(self, length: int) -> None:
        """Drop half of the window, if what is left begins with enough text that is out of the way."""
        ids = self._ids[-WINDOW // 2 :]
        taken = len(self._decode(ids)) - (length - self._taken)  # only the beginning of its text can differ
        if taken >= LEFT:
            self._ids, self._taken = ids, taken

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


@define(eq=False)
class StopFilter:
    """Holds back text that may turn out to be the beginning of a stop text."""

    stops: tuple[str, ...]
    stopped: bool = field(default=False, init=False)
    _held: str = field(default="", init=False)

    def push(self, text: str) -> str:
        """The text that is safe to release; sets `stopped` once a stop text is complete, and cuts before it."""
        self._held += text
        found = [at for stop in self.stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            released, self._held = self._held[: min(found)], ""
            return released
        keep = self._undecided()
        released, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return released

    def flush(self) -> str:
        """What was held back, when the end came without a stop text."""
        held, self._held = self._held, ""
        return held

    def _undecided(self) -> int:
        """Length of the longest end of the held text with which some stop text begins."""
        longest = min(len(self._held), max(map(len, self.stops), default=1) - 1)
        sizes = range(longest, 0, -1)
        return next((n for n in sizes if any(stop.startswith(self._held[-n:]) for stop in self.stops)), 0)
