"""Text in pieces: whole characters only, nothing that changes later, and all of it in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import define
from hypothesis import example, given, settings
from hypothesis import strategies as st

from draftmux.engine.stream import WINDOW, Detokenizer
from draftmux.testing.texts import END, byte_tokenizer, cut_up, fallback_tokenizer

Make = Callable[[], Any]
TOKENIZERS = pytest.mark.parametrize("make", [byte_tokenizer, fallback_tokenizer])
TEXT = "é🙂你好 the cat\n"


def decoded(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def byte_ids(tokenizer: Any, data: bytes) -> list[int]:
    """One token a byte."""
    spelling = fallback if tokenizer is fallback_tokenizer() else byte_level
    ids = tokenizer.convert_tokens_to_ids([spelling(byte) for byte in data])
    assert None not in ids
    return list(ids)


def fallback(byte: int) -> str:
    return f"<0x{byte:02X}>"


def byte_level(byte: int) -> str:
    """A printable byte is spelt as itself, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [other for other in range(256) if other not in printable]
    return chr(byte) if byte in printable else chr(0x100 + others.index(byte))


@st.composite
def token_ids(draw: Any, tokenizer: Any) -> list[int]:
    """Any tokens, often parts of characters, wrong bytes or the end token, and some of them again and again."""
    text, end = byte_ids(tokenizer, TEXT.encode()), tokenizer.convert_tokens_to_ids(END)
    spans = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(lambda span: text[span[0] : span[1]])
    wrong = st.sampled_from([[end], *([token] for token in byte_ids(tokenizer, b"\xff\xc3\xa9\xf0"))])
    single = wrong | st.integers(0, len(tokenizer) - 1).map(lambda token: [token])
    repeated = st.tuples(single, st.integers(1, 3 * WINDOW)).map(lambda pair: pair[0] * pair[1])
    return [token for part in draw(st.lists(spans | single | repeated, max_size=12)) for token in part]


def check(tokenizer: Any, ids: list[int]) -> None:
    """What is shown begins the text so far and the text in the end, and with what is left it is that text."""
    detokenizer, shown, whole = Detokenizer(tokenizer), "", decoded(tokenizer, ids)
    for count, token in enumerate(ids, start=1):
        shown += detokenizer.push(token)
        assert whole.startswith(shown), f"{shown!r} changes into {whole!r}"
        assert decoded(tokenizer, ids[:count]).startswith(shown)
    assert shown + detokenizer.flush() == whole
    assert detokenizer.flush() == ""


@TOKENIZERS
@settings(max_examples=200)
@given(data=st.data())
def test_the_pieces_are_the_decoders_text_of_all_tokens(make: Make, data: Any) -> None:
    check(make(), data.draw(token_ids(make())))


@TOKENIZERS
@given(data=st.binary(max_size=12))
@example(data=b"\xc3\xa9\xff")  # the wrong byte at the end takes the é of the fallback decoder with it
def test_any_bytes(make: Make, data: bytes) -> None:
    check(make(), byte_ids(make(), data))


def pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def test_text_is_shown_as_soon_as_it_is_certain() -> None:
    tokenizer = byte_tokenizer()
    assert pieces(tokenizer, byte_ids(tokenizer, "aé🙂b".encode())) == ["a", "", "é", "", "", "", "🙂", "b", ""]
    tokenizer = fallback_tokenizer()
    the, cat = tokenizer.convert_tokens_to_ids(["▁the", "▁cat"])
    new_line, smile = byte_ids(tokenizer, b"\n"), byte_ids(tokenizer, "🙂".encode())
    assert pieces(tokenizer, [the, cat, *new_line, the]) == ["the", " cat", "", "\n the", ""]
    assert pieces(tokenizer, [*smile, *new_line, cat, *smile]) == ["", "", "", "", "", "🙂\n cat", "", "", "", "", "🙂"]


@pytest.mark.parametrize("seed", range(20))
def test_tokens_that_cut_characters(seed: int) -> None:
    ids = cut_up("naïve café 🙂🙂 🙃 你好 " * 3, np.random.default_rng(seed))
    check(byte_tokenizer(), ids)
    assert "\ufffd" not in "".join(pieces(byte_tokenizer(), ids))


@define
class Counting:
    """A tokenizer that counts the ids it decodes."""

    tokenizer: Any
    count: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def decode(self, ids: list[int], **settings: Any) -> str:
        self.count += len(ids)
        return str(self.tokenizer.decode(ids, **settings))


@TOKENIZERS
@pytest.mark.parametrize("text", ["a", "the cat 🙂", "\xff", "é", "\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_token_costs_the_same_in_a_long_text(make: Make, text: str, encoding: str) -> None:
    tokenizer = Counting(make())
    ids = byte_ids(tokenizer.tokenizer, text.encode(encoding, "replace") * 500)
    end = tokenizer.tokenizer.convert_tokens_to_ids(END)
    for tokens in (ids, [token for pair in zip(ids, ids[::-1], strict=True) for token in (*pair, end)], [end] * 3000):
        tokenizer.count = 0
        pieces(tokenizer, tokens)
        assert tokenizer.count <= 2 * WINDOW * len(tokens)
