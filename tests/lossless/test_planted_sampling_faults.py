"""Faults of the draw, each with a property that notices: prefixes, noise, ties, settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from draftmux import noise, sampling
from draftmux.engine.scheduler import Scheduler
from draftmux.generation import Generation
from draftmux.sampling import RuleContext, Sampler, SamplingRule
from draftmux.testing.drafters import TreeOracle
from draftmux.testing.harness import Trial
from draftmux.testing.outside import check_laws, check_text
from draftmux.testing.planted import Fault, Faults, check_caught
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted

FAULTS = Faults()  # filled by the decorators below, before pytest reads it


@pytest.mark.parametrize("fault", FAULTS.all, ids=lambda fault: fault.name)
def test_the_fault_is_noticed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(fault, monkeypatch)


# The properties, on fixed inputs.


def speculates(levels: int = 1 << 16, eos_ids: tuple[int, ...] = (), **settings: Any) -> None:
    """A tree oracle over a small law; the tokens by the book."""
    asks = [Ask((1, 3), Generation(max_new_tokens=13, seed=7 + i, **settings), f"request-{i}") for i in range(3)]
    trial = Trial.prepare(scripted(hash_law(8, 6, levels), 6, eos_ids=eos_ids), asks)
    trial.check(lambda truths: {"tree": TreeOracle(truths, 6, k=5)}, max_batch=3)


def draws_by_position() -> None:
    speculates(temperature=2.0)


def penalises_each_nodes_own_prefix() -> None:
    speculates(repetition_penalty=1.5)
    speculates(no_repeat_ngram_size=2)


def breaks_ties() -> None:
    speculates(levels=2)
    speculates(levels=2, logit_bias={0: 0.0})


def counts_new_tokens() -> None:
    speculates(min_new_tokens=4, eos_ids=(0, 1, 2, 3))


def reports_the_targets_logprobs() -> None:
    speculates(temperature=0.3, logprobs=True)


def warps_in_transformers_order() -> None:
    for seed in range(3):
        check_laws("llama", (1 + seed, 2), Generation(max_new_tokens=5, temperature=2.0, top_p=0.7, top_k=9))


def follows_every_setting() -> None:
    generation = Generation(max_new_tokens=12, no_repeat_ngram_size=1, repetition_penalty=1.2)
    check_text("qwen3", (1, 2, 3), generation, frozenset())


# The prefix of a node.


@FAULTS.breaks(penalises_each_nodes_own_prefix)
def every_node_is_processed_with_the_roots_prefix(patch: Any) -> None:
    patch.setattr(Sampler, "_prefix", lambda self, node: torch.from_numpy(self.context.tokens.copy())[None])


@FAULTS.breaks(penalises_each_nodes_own_prefix)
def nodes_of_one_depth_share_their_processed_logits(patch: Any) -> None:
    def logits(self: Any, node: int) -> Any:
        return self._processed.setdefault(self.position(node), self._process(min(node, 1)))

    patch.setattr(Sampler, "logits", logits)


@FAULTS.breaks(counts_new_tokens)
def the_prompt_counts_as_new_tokens(patch: Any) -> None:
    def rule(self: Any, tokens: Any, generation: Any) -> SamplingRule:
        backend = self.parts.backend
        return SamplingRule.build(generation, RuleContext(backend.vocab_size, 0, backend.eos_ids, backend.device))

    patch.setattr(Scheduler, "_rule", rule)


# Noise.


@FAULTS.breaks(draws_by_position)
def noise_is_keyed_by_the_step(patch: Any) -> None:
    def position(self: Any, node: int) -> int:
        return self.context.prompt_length + len(self.context.history) + max(node + 1, 0)

    patch.setattr(Sampler, "position", position)


@FAULTS.breaks(draws_by_position)
def noise_is_keyed_by_the_node_not_its_depth(patch: Any) -> None:
    patch.setattr(Sampler, "position", lambda self, node: len(self.context.tokens) + node + 1)


@FAULTS.breaks(draws_by_position)
def the_bonus_token_is_keyed_at_its_parents_position(patch: Any) -> None:
    def position(self: Any, node: int) -> int:
        leaf = node >= 0 and node not in self.draft.parents
        return original(self, node) - leaf

    original = Sampler.position
    patch.setattr(Sampler, "position", position)


@FAULTS.breaks(draws_by_position)
def noise_comes_from_a_generator(patch: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    draw = lambda seed, position, words: torch.rand(len(words), generator=generator, dtype=torch.float64)  # noqa: E731
    patch.setattr(noise, "_uniforms", draw)


@FAULTS.breaks(draws_by_position)
def the_seed_is_ignored(patch: Any) -> None:
    original = sampling.perturbed
    patch.setattr(sampling, "perturbed", lambda logits, seed, position: original(logits, 0, position))


@FAULTS.breaks(draws_by_position)
def the_draw_forgets_the_logits(patch: Any) -> None:
    patch.setattr(Sampler, "logits", lambda self, node: torch.zeros(6, dtype=torch.float64))


# Ties and settings.


@FAULTS.breaks(breaks_ties)
def ties_go_to_the_highest_id(patch: Any) -> None:
    def pick(self: Any, node: int) -> int:
        logits = self.logits(node)
        return len(logits) - 1 - int(logits.flip(0).argmax())

    patch.setattr(Sampler, "pick", pick)


@FAULTS.breaks(reports_the_targets_logprobs)
def logprobs_are_of_the_warped_law(patch: Any) -> None:
    patch.setattr(Sampler, "logprob", lambda self, node, token: float(self.logits(node).log_softmax(-1)[token]))


@FAULTS.breaks(warps_in_transformers_order)
def warpers_run_backwards(patch: Any) -> None:
    original = sampling.warpers
    patch.setattr(sampling, "warpers", lambda generation: original(generation)[::-1])


@FAULTS.breaks(follows_every_setting)
def a_setting_is_accepted_and_ignored(patch: Any) -> None:
    original = sampling.processors
    patch.setattr(sampling, "processors", lambda generation, context: original(generation, context)[:-1])
