"""Hypothesis strategies for everything that a decoding test varies. The only module here that imports Hypothesis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from draftmux.generation import Generation
from draftmux.testing.drafters import Alternating, Corrupt, Empty, Oracle, RandomTree, TreeOracle, grow_tree
from draftmux.testing.reference import Ask
from draftmux.testing.routers import RandomRouter
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from draftmux.backends.scripted import ScriptedTarget
    from draftmux.protocols import BoundBackend, Drafter, Router
    from draftmux.testing.harness import Truths

SEEDS = st.integers(0, 1 << 16)
K = st.sampled_from((4, 1, 2, 8))


@st.composite
def budgets(draw: st.DrawFn, most: int = 12) -> Budget:
    """Any budget with room for a node."""
    size = st.one_of(st.integers(1, most), st.just(1 << 30))
    return Budget(draw(size), draw(size), draw(size))


@st.composite
def draft_trees(draw: st.DrawFn, vocab_size: int, max_nodes: int = 12) -> Draft:
    """Any tree whose siblings differ, in any order of nodes."""
    rng = np.random.default_rng(draw(SEEDS))
    trunk = draw(st.lists(st.integers(0, vocab_size - 1), max_size=max_nodes))
    return grow_tree(rng, trunk, draw(st.integers(0, max_nodes - len(trunk))), vocab_size, Budget())


def prompts(vocab_size: int, max_size: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    """One to `max_size` ids, end tokens included."""
    return st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=max_size).map(tuple)


def generations(
    vocab_size: int, max_new_tokens: int = 16, end_ids: Collection[int] = (), **fixed: Any
) -> st.SearchStrategy[Generation]:
    """Any settings, greedy and sampled, also such that leave no token to choose; `fixed` ones as given.

    The target's `end_ids` are not banned, since that is refused.
    """
    ids = st.integers(0, vocab_size - 1)
    words = st.lists(ids, min_size=1, max_size=3).filter(lambda word: len(word) > 1 or word[0] not in end_ids)
    settings: dict[str, st.SearchStrategy[Any]] = {
        "temperature": st.sampled_from((0.0, 0.0, 0.3, 1.0, 2.0)),
        "seed": SEEDS,
        "top_k": st.sampled_from((0, 0, 1, 3)),
        "top_p": st.sampled_from((1.0, 1.0, 0.9, 0.5)),
        "min_p": st.sampled_from((0.0, 0.0, 0.1)),
        "typical_p": st.sampled_from((1.0, 1.0, 0.8)),
        "repetition_penalty": st.sampled_from((1.0, 1.0, 1.3, 0.8)),
        "no_repeat_ngram_size": st.sampled_from((0, 0, 1, 2, 3)),
        "bad_word_ids": st.lists(words, max_size=2),
        "logit_bias": st.dictionaries(ids, st.sampled_from((-5.0, -1.0, 2.0)), max_size=3),
        "min_new_tokens": st.sampled_from((0, 0, 3, 6)),
        "stop_ids": st.lists(ids, max_size=1),
        "ignore_eos": st.booleans(),
        "logprobs": st.booleans(),
        # Hypothesis likes small numbers; decoding faults like long texts.
        "max_new_tokens": st.integers(0, max_new_tokens - 1).map(lambda less: max_new_tokens - less),
    }
    return st.builds(Generation, **{**settings, **{name: st.just(value) for name, value in fixed.items()}})


@st.composite
def hash_targets(draw: st.DrawFn) -> ScriptedTarget:
    """Pseudo-random laws over 5 to 8 tokens, with and without ties, end tokens and a longest sequence."""
    size = draw(st.integers(5, 8))
    return scripted(
        hash_law(draw(SEEDS), size, draw(st.sampled_from((1 << 16, 1 << 16, 4)))),
        size,
        eos_ids=draw(st.frozensets(st.integers(0, size - 1), max_size=2)),
        max_length=draw(st.sampled_from((None, None, 8, 13))),
    )


@st.composite
def asks(draw: st.DrawFn, /, target: BoundBackend, count: int = 1, max_new_tokens: int = 16) -> list[Ask]:
    """`count` requests to a target that differ in everything, with prompts short enough for those above."""
    settings = generations(target.vocab_size, max_new_tokens, target.eos_ids)
    return [Ask(draw(prompts(target.vocab_size)), draw(settings), f"request-{number}") for number in range(count)]


@st.composite
def drafter_sets(draw: st.DrawFn, vocab_size: int) -> Callable[[Truths], Mapping[str, Drafter]]:
    """What to make of the known truths: one drafter of each kind, in any order, so that any may come first."""
    k, seed, at = draw(K), draw(SEEDS), draw(st.integers(0, 7))
    order = draw(st.permutations(("oracle", "corrupt", "empty", "alternating", "random", "tree")))

    def make(truths: Truths) -> Mapping[str, Drafter]:
        tree = TreeOracle(truths, vocab_size, k, seed=seed)
        known: dict[str, Drafter] = {
            "oracle": Oracle(truths, k),
            "corrupt": Corrupt(truths, vocab_size, k, min(at, k - 1)),
            "empty": Empty(),
            "alternating": Alternating(tree),
            "random": RandomTree(vocab_size, seed=seed),
            "tree": tree,
        }
        return {name: known[name] for name in order}

    return make


def routers() -> st.SearchStrategy[Router | None]:
    """Always the first drafter (None: the harness's default), or a random choice at every step."""
    return st.one_of(st.none(), st.builds(RandomRouter, SEEDS))
