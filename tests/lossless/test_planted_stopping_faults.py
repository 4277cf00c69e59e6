"""Faults of ending a request and of writing its text, each with a property that notices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from draftmux.engine.session import Session
from draftmux.engine.stopping import Stopping
from draftmux.engine.stream import UNFINISHED, Detokenizer, StopFilter
from draftmux.generation import Generation
from draftmux.testing.drafters import Oracle, TreeOracle
from draftmux.testing.harness import Trial
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, script_law, scripted
from draftmux.testing.texts import byte_tokenizer, cut_up

FAULTS = Faults()  # filled by the decorators below, before pytest reads it
TEXT = "the 🙂 cat 你好 then the hat, naïve"


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


# The properties, on fixed inputs.


def speculates(max_length: int | None = None, eos_ids: tuple[int, ...] = (), **settings: Any) -> None:
    """A tree oracle over a small law; the tokens by the book."""
    target = scripted(hash_law(8, 6), 6, eos_ids=eos_ids, max_length=max_length)
    asks = [Ask((1, 3 + i), Generation(max_new_tokens=11 + 2 * i, **settings), f"request-{i}") for i in range(3)]
    Trial.prepare(target, asks).check(lambda truths: {"tree": TreeOracle(truths, 6, k=5)}, max_batch=2)


def ends_inside_a_block() -> None:
    for token in range(6):
        speculates(eos_ids=(token, 5))


def ends_at_the_context_limit() -> None:
    speculates(max_length=9)


def ignores_end_tokens() -> None:
    speculates(eos_ids=(0, 1, 2), ignore_eos=True)


def stops_at_the_limit() -> None:
    """The end token stands exactly where the length ends."""
    target = scripted(script_law([0, 1, 2, 3, 4], 5, last=0), 5, eos_ids={4})
    trial = Trial.prepare(target, [Ask((0,), Generation(max_new_tokens=4))])
    trial.check(lambda truths: {"oracle": Oracle(truths)})


def writes_text(stop: str | None, broken_end: bool = False) -> None:
    """Text in pieces of all sizes; a stop text in it; or its last character unfinished."""
    tokenizer = byte_tokenizer()
    for seed in range(4):
        half = tokenizer.convert_tokens_to_ids("ä")  # the first byte of a Chinese character, in byte-level spelling
        ids = cut_up(TEXT, np.random.default_rng(seed)) + ([half] if broken_end else [])
        law = script_law([70, *ids], len(tokenizer), tokenizer.eos_token_id)
        target = scripted(law, len(tokenizer), eos_ids={tokenizer.eos_token_id}, tokenizer=tokenizer)
        ask = Ask((70,), Generation(max_new_tokens=len(ids) + 1, stop=[stop] if stop else []))
        outcome = Trial.prepare(target, [ask]).check(lambda truths: {"oracle": Oracle(truths, k=3)})["request"]
        assert broken_end or UNFINISHED not in outcome.finished.text


def finds_stop_texts() -> None:
    for stop in ("cat", "好 then", "🙂", "e hat"):
        writes_text(stop)


def gives_out_what_it_held_back() -> None:
    writes_text("naïve!")


def shows_whole_characters() -> None:
    writes_text(None)


# Ends.


@FAULTS.breaks(ends_inside_a_block)
def an_end_token_counts_only_at_the_end_of_a_block(patch: Any) -> None:
    def cut(self: Any, tokens: Any) -> Any:
        texts = [self._push(token) for token in tokens]
        if self.reason == "stop" and tokens[-1] not in self.end_ids:
            self.reason = None
        return texts, self.reason

    patch.setattr(Stopping, "cut", cut)


@FAULTS.breaks(ends_inside_a_block)
def tokens_after_the_end_are_kept(patch: Any) -> None:
    def cut(self: Any, tokens: Any) -> Any:
        return [self._push(token) for token in tokens], self.reason

    patch.setattr(Stopping, "cut", cut)


@FAULTS.breaks(speculates)
def the_length_is_one_too_long(patch: Any) -> None:
    def build(cls: Any, generation: Any, eos_ids: Any, limit: int, tokenizer: Any) -> Stopping:
        return original(generation, eos_ids, limit + 1, tokenizer)

    original = Stopping.build
    patch.setattr(Stopping, "build", classmethod(build))


@FAULTS.breaks(stops_at_the_limit)
def length_beats_stop(patch: Any) -> None:
    def push(self: Any, token: int) -> str:
        text: str = original(self, token)
        if self.count >= self.limit:
            self.reason = "length"
        return text

    original = Stopping._push
    patch.setattr(Stopping, "_push", push)


@FAULTS.breaks(ignores_end_tokens)
def ignore_eos_is_ignored(patch: Any) -> None:
    def build(cls: Any, generation: Any, eos_ids: Any, limit: int, tokenizer: Any) -> Stopping:
        stopping = original(generation, eos_ids, limit, tokenizer)
        stopping.end_ids |= eos_ids
        return stopping

    original = Stopping.build
    patch.setattr(Stopping, "build", classmethod(build))


@FAULTS.breaks(ends_at_the_context_limit)
def the_budget_forgets_the_remaining_length(patch: Any) -> None:
    patch.setattr(Session, "budget", lambda self, asked: asked)


@FAULTS.breaks(finds_stop_texts)
def the_stop_filter_sees_only_the_last_piece(patch: Any) -> None:
    def push(self: Any, text: str) -> str:
        found = [text.find(stop) for stop in self.stops if stop in text]
        self.stopped = bool(found)
        return text[: min(found)] if found else text

    patch.setattr(StopFilter, "push", push)


@FAULTS.breaks(finds_stop_texts)
def half_a_stop_text_is_shown(patch: Any) -> None:
    patch.setattr(StopFilter, "_undecided", lambda self: 0)


@FAULTS.breaks(gives_out_what_it_held_back)
def text_held_back_is_lost(patch: Any) -> None:
    patch.setattr(StopFilter, "flush", lambda self: "")


@FAULTS.breaks(shows_whole_characters)
def half_characters_are_shown(patch: Any) -> None:
    def push(self: Any, token: int) -> str:
        self._ids.append(token)
        text: str = self.flush()
        return text

    patch.setattr(Detokenizer, "push", push)


@FAULTS.breaks(lambda: writes_text(None, broken_end=True))
def an_unfinished_character_is_lost_at_the_end(patch: Any) -> None:
    patch.setattr(Detokenizer, "flush", lambda self: "")
