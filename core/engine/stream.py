"""From token ids to text, piece by piece: whole characters only, and nothing that a stop text could take back."""

from __future__ import annotations

from typing import Any

from attrs import define, field

UNFINISHED = "\ufffd"  # what decoders write for a character whose last bytes are still to come


@define(eq=False)
class Detokenizer:
    """Decodes one sequence's new tokens. The pieces add up to the decoder's text of all of them."""

    tokenizer: Any
    _ids: list[int] = field(factory=list, init=False)
    _start: int = field(default=0, init=False)  # decoding starts here, one piece back: decoders look left
    _done: int = field(default=0, init=False)  # ids before this one are released

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is unfinished."""
        self._ids.append(token)
        text = self._pending()
        if not text or text.endswith(UNFINISHED):
            return ""
        self._start, self._done = self._done, len(self._ids)
        return text

    def flush(self) -> str:
        """What is left, unfinished characters included."""
        text = self._pending()
        self._start = self._done = len(self._ids)
        return text

    def _pending(self) -> str:
        before = self._decode(self._ids[self._start : self._done])
        return self._decode(self._ids[self._start :])[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        if not ids:
            return ""
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
