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
    vocabulary: Vocabulary

    def allowed(self) -> NDArray[np.bool_]:
        """`(V,)`, True where a token may come next."""
        packed = np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8)
        _refuse_errors(self.matcher)
        mask = np.unpackbits(packed, bitorder="little", count=self.vocabulary.size).astype(np.bool_)
        if not self.matcher.is_accepting():  # a literal that spells an end token is no end
            mask[list(self.vocabulary.end_ids)] = False
        return mask

    def advance(self, token: int) -> GrammarState | None:
        """The state after one more token; None if the grammar does not allow it."""
        if token in self.vocabulary.end_ids and not self.matcher.is_accepting():
            return None
        ahead = self.matcher.deep_copy()
        taken = ahead.try_consume_tokens([token])
        _refuse_errors(ahead)
        return GrammarState(ahead, self.vocabulary) if taken else None


def _refuse_errors(matcher: Any) -> None:
    if matcher.is_error():
        raise RequestError(f"the grammar cannot go on: {_first_line(matcher.get_error())}")


@frozen
class Grammar(ABC):
    """A constraint that compiles to an llguidance grammar. RequestError at once when the grammar is faulty."""

    _compiled: str = field(init=False, repr=False, eq=False)  # once, so that a file is read when the grammar is written

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_compiled", self.compile())
        fault = _llguidance().LLMatcher.validate_grammar(self._compiled)
        if fault and not fault.startswith("WARNING"):
            raise RequestError(f"{type(self).__name__}: {_first_line(fault)}")

    @abstractmethod
    def compile(self) -> str:
        """The grammar, written by one of the `grammar_from_…` functions of llguidance's matcher class."""

    def begin(self, vocabulary: Vocabulary) -> GrammarState:
        """The state before the first token; RequestError when the grammar is too much for llguidance."""
        matcher = _llguidance().LLMatcher(_tokenizer(vocabulary), self._compiled, log_level=0)
        _refuse_errors(matcher)
        return GrammarState(matcher, vocabulary)


@frozen
class JsonSchema(Grammar):
    """The text is one JSON value that the schema describes. What llguidance cannot enforce of a schema is refused."""

    schema: Any = option("the JSON Schema: a mapping, its text, or the path of a JSON file")
    compact: bool = option("no white space between tokens of JSON; small models can get lost in it", default=False)

    def compile(self) -> str:
        """As llguidance compiles JSON Schema."""
        overrides = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        try:
            found = self._read()
            found = {} if found is True else found  # both describe any value; options want a mapping
            return str(
                _llguidance().LLMatcher.grammar_from_json_schema(
                    json.dumps(found), overrides=overrides if self.compact else None
                )
            )
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise RequestError(f"JsonSchema: {_first_line(str(error))}") from error

    def _read(self) -> Any:
        if not isinstance(self.schema, (str, Path)):
            return self.schema
        text = str(self.schema)
        if not text.lstrip().startswith("{"):
            text = Path(text).expanduser().read_text(encoding="utf-8-sig")
        return json.loads(text)


@frozen
class Regex(Grammar):
    """The whole text matches a regular expression (the syntax of Rust's regex crate; no look-around)."""

    pattern: str = option("the regular expression; it must match the whole text")

    def compile(self) -> str:
        """As llguidance compiles regular expressions."""
        return str(_llguidance().LLMatcher.grammar_from_regex(self.pattern))


@frozen
class Lark(Grammar):
    """The text is derived by a context-free grammar in llguidance's variant of Lark's notation."""

    grammar: str = option("the grammar; its rule `start` derives the whole text")

    def compile(self) -> str:
        """As llguidance compiles Lark grammars."""
        return str(_llguidance().LLMatcher.grammar_from_lark(self.grammar))


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
