"""Known mistakes of porting EAGLE-3, planted one by one. None changes the text; the plain equations notice each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from draftmux.backends.masks import Feed
from draftmux.drafters.eagle3 import checkpoint
from draftmux.drafters.eagle3.bound import BoundEagle3
from draftmux.drafters.eagle3.format import IDS, _Reader
from draftmux.drafters.eagle3.model import Attention, Eagle3Head, Layer
from draftmux.drafters.neural.growth import Sprout
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.testing.planted import Fault, check_caught
from draftmux.types import Tap

PLANTS: list[Callable[[Any], None]] = []


def plant(fault: Callable[[Any], None]) -> Callable[[Any], None]:
    PLANTS.append(fault)
    return fault


@pytest.fixture
def right(random_plain: Any, write: Any, agree: Any, tmp_path: Path) -> Callable[[], None]:
    """The property: a head with a norm over its input decodes as the equations say, as a chain and as a tree."""
    plain = random_plain(reads=(1, 3, 6), more={"input_norm.weight": (96,)})
    config = {"architectures": ["LlamaForCausalLM"], IDS: [1, 3, 6], "norm_before_fc": True}
    head = write(tmp_path, {**config, **plain.config}, plain.tensors)

    def right() -> None:
        agree(head, plain, first=1, depth=3, top_k=1)
        agree(head, plain, first=1, depth=3, top_k=2, max_nodes=5, backend="transformers")

    return right


@pytest.mark.parametrize("fault", PLANTS, ids=lambda fault: fault.__name__)
def test_the_fault_is_noticed(
    fault: Callable[[Any], None], right: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_caught(Fault(fault, right), monkeypatch)


# What the head reads of the target.


@plant
def taps_are_shifted_by_one(patch: Any) -> None:
    once = _Reader._taps
    patch.setattr(_Reader, "_taps", lambda *given: tuple(Tap(tap.layer + 1, tap.kind) for tap in once(*given)))


@plant
def taps_are_joined_from_high_to_low(patch: Any) -> None:
    patch.setattr(BoundEagle3, "_joined", lambda self, taps: torch.cat([taps[tap] for tap in self.taps[::-1]], -1))


@plant
def features_are_normed(patch: Any) -> None:
    def joined(self: Any, taps: Any) -> Any:
        norm = self.backend.model.model.norm
        return torch.cat([norm(taps[tap]) for tap in self.taps], -1)

    patch.setattr(BoundEagle3, "_joined", joined)


@plant
def the_norm_of_the_input_is_left_out(patch: Any) -> None:
    patch.setattr(Eagle3Head, "fuse", lambda self, taps: self.fc(taps))


@plant
def the_feature_meets_its_own_token(patch: Any) -> None:
    """Not the token after it."""
    once = BoundEagle3._pending

    def pending(self: Any, request: Any) -> Feed:
        feed = once(self, request)
        tokens = request.context.tokens[feed.start : feed.start + len(feed.tokens)]
        return evolve(feed, tokens=tokens)

    patch.setattr(BoundEagle3, "_pending", pending)


@plant
def the_embedding_is_random(patch: Any) -> None:
    once = checkpoint._share

    def share(source: str, head: Any, lent: Any, fit: Any, shape: Any) -> None:
        once(source, head, lent, fit, shape)
        head.embed_tokens = torch.nn.Embedding(fit.vocab_size, fit.hidden_size, dtype=torch.float64)

    patch.setattr(checkpoint, "_share", share)


# Positions and the cache.


def change_drafted_feeds(patch: Any, change: Callable[[Feed], Feed]) -> None:
    once = BoundEagle3.extend
    patch.setattr(BoundEagle3, "extend", lambda self, requests, feeds: once(self, requests, [*map(change, feeds)]))


@plant
def drafted_positions_are_off_by_one(patch: Any) -> None:
    change_drafted_feeds(patch, lambda feed: evolve(feed, depths=feed.depths + 1))


@plant
def all_levels_stand_at_one_position(patch: Any) -> None:
    change_drafted_feeds(patch, lambda feed: evolve(feed, depths=feed.depths * 0))


@plant
def a_stale_entry_of_the_last_draft_is_seen(patch: Any) -> None:
    """It stands where the cache was not cut back after a rejection; positions are right."""

    def behind(feed: Feed) -> Feed:
        return evolve(feed, start=feed.start + 1, depths=feed.depths - 1, before=feed.before - 1)

    change_drafted_feeds(patch, behind)


@plant
def accepted_entries_keep_the_heads_own_features(patch: Any) -> None:
    """Only the last pair of those that wait is read; the others stay as drafting left them."""
    once = BoundEagle3._pending

    def pending(self: Any, request: Any) -> Feed:
        begun = request.state.sequence is not None
        feed = once(self, request)
        if not begun or len(feed.tokens) == 1 or feed.states is None:
            return feed
        return Feed.run(feed.tokens[-1:], feed.end - 1, feed.states[-1:])

    patch.setattr(BoundEagle3, "_pending", pending)


@plant
def steps_of_other_drafters_are_not_read(patch: Any) -> None:
    once = BoundEagle3.observe
    patch.setattr(
        BoundEagle3, "observe", lambda self, state, step: once(self, state, step) if step.drafter == "eagle" else None
    )


@plant
def siblings_see_each_other(patch: Any) -> None:
    once = Sprout.feed

    def feed(self: Sprout, start: int) -> Feed:
        right = once(self, start)
        return evolve(right, mask=right.mask | True)

    patch.setattr(Sprout, "feed", feed)


@plant
def nodes_read_the_state_of_another_parent(patch: Any) -> None:
    change_drafted_feeds(patch, lambda feed: feed if feed.states is None else evolve(feed, states=feed.states.flip(0)))


# The equations.


def change_inputs(patch: Any, inputs: Callable[[Layer, Any, Any], Any]) -> None:
    patch.setattr(Layer, "inputs", inputs)


@plant
def the_normed_state_is_fed_back(patch: Any) -> None:
    patch.setattr(Eagle3Head, "carried", lambda self, states: self.norm(states))


@plant
def hidden_norm_and_input_layernorm_are_swapped(patch: Any) -> None:
    def inputs(self: Any, states: Any, embeds: Any) -> Any:
        return torch.cat((self.hidden_norm(embeds), self.input_layernorm(states)), -1), states

    change_inputs(patch, inputs)


@plant
def the_feature_stands_before_the_embedding(patch: Any) -> None:
    def inputs(self: Any, states: Any, embeds: Any) -> Any:
        return torch.cat((self.hidden_norm(states), self.input_layernorm(embeds)), -1), states

    change_inputs(patch, inputs)


@plant
def the_residual_is_the_normed_feature(patch: Any) -> None:
    def inputs(self: Any, states: Any, embeds: Any) -> Any:
        normed = self.hidden_norm(states)
        return torch.cat((self.input_layernorm(embeds), normed), -1), normed

    change_inputs(patch, inputs)


@plant
def keys_are_not_rotated(patch: Any) -> None:
    once = Attention.heads

    def heads(self: Any, states: Any, rotation: Any) -> Any:
        none = torch.ones_like(rotation[0]), torch.zeros_like(rotation[1])
        query, _, value = once(self, states, rotation)
        return query, once(self, states, none)[1], value

    patch.setattr(Attention, "heads", heads)


@plant
def places_of_the_draft_vocabulary_are_taken_for_ids(patch: Any) -> None:
    patch.setattr(Vocabulary, "targets", lambda self, places: places)
