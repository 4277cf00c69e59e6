"""What a caller gets back: pieces while a request runs, a result when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import frozen

if TYPE_CHECKING:
    from draftmux.engine.metrics import Metrics
    from draftmux.errors import DraftmuxError

# "cancelled" is what Scheduler.cancel gives; a request that runs to its end stops or reaches its length.
FinishReason = Literal["stop", "length", "cancelled"]
TARGET = "target"  # source of a token that nobody guessed


@frozen
class Piece:
    """One generated token. `text` is what it released: possibly nothing, until a character or a stop text is decided.

    `source` is the drafter that guessed it, or `target`.
    """

    token: int
    text: str
    source: str
    logprob: float | None = None


@frozen
class Delta:
    """What one step added to one request. The last one brings `result`, or the `error` that ended the request."""

    request_id: str
    pieces: tuple[Piece, ...] = ()
    result: Result | None = None
    error: DraftmuxError | None = None

    @property
    def text(self) -> str:
        """Text that this step released, whole characters only."""
        return "".join(piece.text for piece in self.pieces)


@frozen(eq=False)
class Result:
    """A finished request. `tokens` end with the token that ended it; `text` ends before a stop text.

    `lossless` says whether the text is the target's own; `seconds` is the wall time since the request was admitted.
    """

    request_id: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    metrics: Metrics
    lossless: bool
    seconds: float
    logprobs: tuple[float, ...] | None = None
