"""Faults of tree passes and of the KV cache, each with a property that notices: masks, positions, compaction, rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from draftmux import tree
from draftmux.backends.cache import Pool, SlotCache
from draftmux.backends.masks import Feed, attention_mask
from draftmux.backends.static import runner as static
from draftmux.backends.support import Layout
from draftmux.backends.target import Target
from draftmux.backends.transformers import runner as masked
from draftmux.engine import step
from draftmux.generation import Generation
from draftmux.testing.drafters import TreeOracle
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.properties import TreePasses, check_taps
from draftmux.testing.reference import Ask, expect
from draftmux.testing.targets import BACKENDS, MODEL_VOCAB, model_law, tiny_target
from draftmux.types import Scores, Tap

CHOSEN = {"backend": BACKENDS[0]}  # what the properties run on
FAULTS = Faults()  # filled by the decorators below, before pytest reads it


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHOSEN, "backend", backend)
    check_caught(fault, monkeypatch)


# The properties, on fixed inputs.


def passes(name: str = "llama", lengths: tuple[int, ...] = (9, 4, 13, 6), **options: Any) -> None:
    """Random trees of ragged batches, whose rows sit out, leave and come."""
    for seed in range(3):
        TreePasses(tiny_target(name, **CHOSEN, **options), np.random.default_rng(seed)).check(lengths, rounds=5)


def passes_with_windows() -> None:
    passes("mistral")
    passes("gemma3")


def passes_with_learnt_positions() -> None:
    passes("gpt2")


def passes_one_row() -> None:
    passes(lengths=(9,))


def grows() -> None:
    passes(lengths=(250, 3), positions=600)


def prefills_in_chunks() -> None:
    passes(prefill_chunk=4)


def taps() -> None:
    wanted = (Tap(0, "resid_post"), Tap(1, "mlp_out"))
    target, ask = tiny_target("llama", taps=wanted, **CHOSEN), Ask((1, 2, 3), Generation(max_new_tokens=14))
    check_taps(target, wanted, ask, TreeOracle([expect(ask, target, model_law("llama")).truth], MODEL_VOCAB, k=3))


def _replace_masks(patch: Any, attention_mask: Any) -> None:
    for module in (static, masked):
        patch.setattr(module, "attention_mask", attention_mask)


# Positions and masks.


@FAULTS.breaks(passes_one_row)
def positions_count_slots_not_depths(patch: Any) -> None:
    patch.setattr(Feed, "positions", property(lambda feed: feed.start + np.arange(len(feed.tokens))))


@FAULTS.breaks(passes_with_learnt_positions)
def positions_are_one_off(patch: Any) -> None:
    original = Feed.positions.fget  # type: ignore[attr-defined]
    patch.setattr(Feed, "positions", property(lambda feed: original(feed) + 1))


@FAULTS.breaks(passes_one_row)
def the_ancestor_mask_is_a_row_off(patch: Any) -> None:
    def ancestors(parents: Any) -> Any:
        mask = np.eye(len(parents) + 1, dtype=np.bool_)
        for node, parent in enumerate(parents.tolist()):
            mask[node + 1] |= mask[max(parent, 0)]
        return mask

    patch.setattr(tree, "ancestor_mask", ancestors)


@FAULTS.breaks(passes_one_row)
def siblings_see_each_other(patch: Any) -> None:
    patch.setattr(tree, "ancestor_mask", lambda parents: np.tri(len(parents) + 1, dtype=np.bool_))


@FAULTS.breaks(passes)
def padding_rows_are_visible(patch: Any) -> None:
    def padded(feed: Feed, width: int) -> Feed:
        wide = original(feed, width)
        mask = wide.mask.copy()
        mask[:, len(feed.tokens) :] = True
        return Feed(wide.tokens, wide.depths, mask, wide.start)

    original = Feed.padded
    patch.setattr(Feed, "padded", padded)


@FAULTS.breaks(passes)
def a_short_row_sees_the_slots_of_a_long_one(patch: Any) -> None:
    def visible(feeds: list[Feed], window: int | None = None) -> Any:
        mask = attention_mask(feeds, window)
        longest = max(feed.start for feed in feeds)
        mask[:, :, :, :longest] = True
        return mask

    _replace_masks(patch, visible)


@FAULTS.breaks(passes_with_windows)
def the_window_counts_slots_not_positions(patch: Any) -> None:
    def slots(feeds: list[Feed], window: int | None = None) -> Any:
        mask = attention_mask(feeds)
        for row, feed in enumerate(feeds):
            own = feed.start + np.arange(len(feed.tokens))
            near = own[:, None] - np.arange(mask.shape[-1]) < (window or mask.shape[-1])
            mask[row, 0] &= near
        return mask

    _replace_masks(patch, slots)


@FAULTS.breaks(passes_with_windows)
def the_window_is_one_too_wide(patch: Any) -> None:
    _replace_masks(patch, lambda feeds, window=None: attention_mask(feeds, window and window + 1))


@FAULTS.breaks(passes_with_windows)
def all_layers_have_one_mask(patch: Any) -> None:
    patch.setattr(Layout, "window_of", lambda self, kind: None)


# Compaction.


def _commit_from(slots: Any) -> Any:
    """A commit that keeps other slots than those of the path."""

    def commit(self: Any, sequence: Any, path: Any) -> None:
        start = sequence.length
        with torch.inference_mode():
            self.cache.move(sequence.row, slots(start + 1, list(path)), start + 1)
        sequence.length = start + 1 + len(path)

    return commit


@FAULTS.breaks(passes_one_row)
def the_cache_keeps_the_slot_before_each_node(patch: Any) -> None:
    patch.setattr(Target, "commit", _commit_from(lambda first, path: [first + node - 1 for node in path]))


@FAULTS.breaks(passes_one_row)
def the_path_is_not_moved(patch: Any) -> None:
    patch.setattr(SlotCache, "move", lambda *_: None)


@FAULTS.breaks(passes_one_row)
def the_path_is_moved_backwards(patch: Any) -> None:
    patch.setattr(Target, "commit", _commit_from(lambda first, path: [first + node for node in path[::-1]]))


@FAULTS.breaks(passes_one_row)
def only_keys_are_moved(patch: Any) -> None:
    def move(self: Any, row: int, source: Any, target: int) -> None:
        for layer in self.slot_layers:
            layer.keys[row, :, target : target + len(source)] = layer.keys[row][:, list(source)]

    patch.setattr(SlotCache, "move", move)


@FAULTS.breaks(passes_one_row)
def the_cache_is_one_row_too_long(patch: Any) -> None:
    def commit(self: Any, sequence: Any, path: Any) -> None:
        original(self, sequence, path)
        sequence.length += 1

    original = Target.commit
    patch.setattr(Target, "commit", commit)


# Rows.


@FAULTS.breaks(passes)
def a_moved_row_leaves_its_states_behind(patch: Any) -> None:
    patch.setattr(SlotCache, "copy_row", lambda *_: None)


@FAULTS.breaks(passes)
def a_moved_row_keeps_its_old_place(patch: Any) -> None:
    def close(self: Any, sequence: Any) -> None:
        if not sequence.closed:
            sequence.closed = True
            self._open.remove(sequence)

    patch.setattr(Target, "close", close)


@FAULTS.breaks(passes)
def a_sequence_that_sits_out_loses_its_last_slot(patch: Any) -> None:
    original = Feed.idle
    patch.setattr(Feed, "idle", lambda self, start: original(self, max(start - 1, 0)))


@FAULTS.breaks(passes)
def scores_come_in_the_order_of_rows_not_of_the_request(patch: Any) -> None:
    def score(self: Any, rows: Any) -> list[Scores]:
        found = original(self, sorted(rows, key=lambda row: row.sequence.row))
        return [
            Scores(scores.logits[: len(row.draft) + 1].clone()) if len(scores.logits) > len(row.draft) else right
            for row, scores, right in zip(rows, found, original(self, rows), strict=True)
        ]

    original = Target.score
    patch.setattr(Target, "score", score)


@FAULTS.breaks(grows)
def growing_loses_what_was_there(patch: Any) -> None:
    def resize(self: Any, rows: int, capacity: int) -> None:
        self.data = self.data.new_zeros(len(self.data), rows, self.data.shape[2], capacity, self.data.shape[4])

    patch.setattr(Pool, "resize", resize)


@FAULTS.breaks(prefills_in_chunks)
def every_chunk_of_a_prefill_starts_at_zero(patch: Any) -> None:
    original = Feed.run
    patch.setattr(
        Feed, "run", lambda tokens, start, states=None: original(tokens, start if len(tokens) == 1 else 0, states)
    )


# Taps.


@FAULTS.breaks(taps)
def taps_are_taken_by_row_not_by_path(patch: Any) -> None:
    def commit(parts: Any, drafted: Any, *rest: Any) -> Any:
        committed = original(parts, drafted, *rest)
        scores, count = rest[0], len(committed[0].committed)
        drafted.session.taps = {tap: states[:count] for tap, states in scores.taps.items()}
        return committed

    original = step.commit
    patch.setattr(step, "commit", commit)


@FAULTS.breaks(taps)
def taps_leave_out_the_root(patch: Any) -> None:
    def commit(parts: Any, drafted: Any, *rest: Any) -> Any:
        committed = original(parts, drafted, *rest)
        drafted.session.taps = {tap: states[1:] for tap, states in drafted.session.taps.items()}
        return committed

    original = step.commit
    patch.setattr(step, "commit", commit)
