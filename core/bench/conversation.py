"""From the rows of a suite to prompts in token ids, turn after turn.

A later turn needs answers to the earlier ones. They are plain decoding's, so every contender is given the same prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from draftmux.prompts import encode

if TYPE_CHECKING:
    from draftmux.bench.suites import Row
    from draftmux.generation import Generation


@frozen(eq=False)
class Prompt:
    """What is asked: token ids, and where they come from."""

    name: str
    category: str
    tokens: tuple[int, ...]


@define(eq=False)
class Conversation:
    """One row of a suite and plain decoding's answers so far."""

    row: Row
    answers: list[str] = field(factory=list)
    ended: bool = False

    @property
    def open(self) -> bool:
        """Whether there is a turn to ask."""
        return not self.ended and len(self.answers) < len(self.row.turns)

    def prompt(self, tokenizer: Any, generation: Generation) -> Prompt:
        """The next turn after all earlier ones; RequestError when it cannot be encoded."""
        turn = len(self.answers) + 1
        name = self.row.id if len(self.row.turns) == 1 else f"{self.row.id} turn {turn}"
        tokens = encode(self._message(tokenizer, generation), tokenizer, generation)
        return Prompt(name, self.row.category, tuple(tokens))

    def _message(self, tokenizer: Any, generation: Generation) -> Any:
        """A chat where there is a template for it, otherwise all that was said, in paragraphs."""
        said = [text for pair in zip(self.row.turns, self.answers, strict=False) for text in pair]
        said.append(self.row.turns[len(self.answers)])
        if generation.prompt_format == "raw" or getattr(tokenizer, "chat_template", None) is None:
            return "\n\n".join(said)
        return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(said)]
