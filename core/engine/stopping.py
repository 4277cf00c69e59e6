"""When a request ends. The only place that knows: drafters, routers, verifiers and backends do not.

Tokens are looked at one by one, in order, exactly as plain decoding meets them; the first rule that fires ends the
request at that token, and nothing after it exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from draftmux.engine.stream import Detokenizer, StopFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftmux.generation import Generation
    from draftmux.results import FinishReason


@define(eq=False)
class Stopping:
    """Stop rules and the growing text of one request. `limit` counts the tokens it may get in all."""

    end_ids: frozenset[int]
    limit: int
    stop_filter: StopFilter
    detokenizer: Detokenizer | None
    count: int = field(default=0, init=False)
    reason: FinishReason | None = field(default=None, init=False)

    @classmethod
    def build(cls, generation: Generation, eos_ids: frozenset[int], limit: int, tokenizer: Any) -> Stopping:
        """Rules of one request."""
        detokenizer = Detokenizer(tokenizer) if tokenizer is not None else None
        return cls(generation.end_ids(eos_ids), limit, StopFilter(tuple(generation.stop)), detokenizer)

    @property
    def remaining(self) -> int:
        """Tokens that may still come."""
        return self.limit - self.count

    def cut(self, tokens: Sequence[int]) -> tuple[list[str], FinishReason | None]:
        """Take the tokens up to the first that ends the request: one released text each, and the reason if it ended."""
        texts: list[str] = []
        for token in tokens:
            texts.append(self._push(token))
            if self.reason is not None:
                texts[-1] += self._rest()
                break
        return texts, self.reason

    def _push(self, token: int) -> str:
        self.count += 1
        text = "" if self.detokenizer is None else self.stop_filter.push(self.detokenizer.push(token))
        if token in self.end_ids or self.stop_filter.stopped:
            self.reason = "stop"
        elif self.count >= self.limit:
            self.reason = "length"
        return text

    def _rest(self) -> str:
        if self.stop_filter.stopped or self.detokenizer is None:
            return ""
        # Unfinished bytes may still complete a stop text when they are written out.
        return self.stop_filter.push(self.detokenizer.flush()) + self.stop_filter.flush()
