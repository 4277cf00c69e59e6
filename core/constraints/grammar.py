"""Grammars as constraints, by way of llguidance (optional extra `structured`), which walks a grammar token by token.

Knows how a grammar is written and compiled; nothing of drafts, of the engine or of sampling.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

from draftmux.errors import RequestError
from draftmux.options import option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from draftmux.protocols import Vocabulary


@frozen(eq=False)
class GrammarState:
    """An llguidance matcher after some tokens. It is copied before it moves, which shares what was compiled."""

    matcher: Any
    vocab_size: int

    def allowed(self) -> NDArray[np.bool_]:
        """`(V,)`, True where a token may come next."""
        packed = np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8)
        if self.matcher.is_error():
            raise RequestError(f"the grammar cannot go on: {_first_line(self.matcher.get_error())}")
        return np.unpackbits(packed, bitorder="little", count=self.vocab_size).astype(np.bool_)

    def advance(self, token: int) -> GrammarState | None:
        """The state after one more token; None if the grammar does not allow it."""
        ahead = self.matcher.deep_copy()
        return GrammarState(ahead, self.vocab_size) if ahead.consume_token(token) else None


@frozen
class Grammar(ABC):
    """A constraint that compiles to an llguidance grammar."""

    @abstractmethod
    def compile(self, matcher: Any) -> str:
        """The grammar, written by one of the `grammar_from_…` functions of llguidance's matcher class."""

    def begin(self, vocabulary: Vocabulary) -> GrammarState:
        """The state before the first token. RequestError when the grammar is faulty, or llguidance not installed."""
        guidance = _llguidance()
        tokenizer = _tokenizer(vocabulary)
        try:
            grammar = self.compile(guidance.LLMatcher)
        except ValueError as error:
            raise RequestError(f"{type(self).__name__}: {_first_line(str(error))}") from error
        matcher = guidance.LLMatcher(tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise RequestError(f"{type(self).__name__}: {_first_line(matcher.get_error())}")
        return GrammarState(matcher, vocabulary.size)


@frozen
class JsonSchema(Grammar):
    """The text is one JSON value that the schema describes. What llguidance cannot enforce of a schema is refused."""

    schema: Any = option("the JSON Schema, written out as a mapping, or the path of a JSON file")
    compact: bool = option("no white space between tokens of JSON; small models can get lost in it", default=False)

    def compile(self, matcher: Any) -> str:
        """As llguidance compiles JSON Schema."""
        overrides = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        return str(matcher.grammar_from_json_schema(self._written(), overrides=overrides if self.compact else None))

    def _written(self) -> str:
        if not isinstance(self.schema, (str, Path)):
            return json.dumps(self.schema)
        try:
            return json.dumps(json.loads(Path(self.schema).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise RequestError(f"JSON Schema {self.schema} cannot be read: {error}") from error


@frozen
class Regex(Grammar):
    """The whole text matches a regular expression (the syntax of Rust's regex crate; no look-around)."""

    pattern: str = option("the regular expression; it must match the whole text")

    def compile(self, matcher: Any) -> str:
        """As llguidance compiles regular expressions."""
        return str(matcher.grammar_from_regex(self.pattern))


@frozen
class Lark(Grammar):
    """The text is derived by a context-free grammar in llguidance's variant of Lark's notation."""

    grammar: str = option("the grammar; its rule `start` derives the whole text")

    def compile(self, matcher: Any) -> str:
        """As llguidance compiles Lark grammars."""
        return str(matcher.grammar_from_lark(self.grammar))


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise RequestError(
            "a grammar needs the package llguidance, which is not installed: pip install 'draftmux[structured]'"
        ) from error
    return llguidance


@frozen
class _Key:
    """A tokenizer with the size of the vocabulary and the end tokens that go with it."""

    tokenizer: Any = field(eq=id)
    size: int
    end_ids: tuple[int, ...]


def _tokenizer(vocabulary: Vocabulary) -> Any:
    if vocabulary.tokenizer is None:
        raise RequestError("a grammar needs a tokenizer, and this backend has none")
    if not vocabulary.end_ids:
        raise RequestError(
            "a grammar needs a token that ends the text, and there is none; drop ignore_eos or add stop_ids"
        )
    return _wrapped(_Key(vocabulary.tokenizer, vocabulary.size, tuple(sorted(vocabulary.end_ids))))


@lru_cache(maxsize=8)
def _wrapped(key: _Key) -> Any:
    """llguidance's own view of a tokenizer, which takes a while to build."""
    from llguidance.hf import from_tokenizer

    try:
        return from_tokenizer(key.tokenizer, n_vocab=key.size, eos_token=list(key.end_ids))
    except (ValueError, RuntimeError) as error:
        raise RequestError(f"llguidance cannot use this tokenizer: {_first_line(str(error))}") from error


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
