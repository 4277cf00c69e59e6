"""From logits to drafted tokens: q is the request's own law, draws follow it, and noise depends on places alone."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from draftmux.drafters.neural import laws
from draftmux.drafters.neural.growth import grow
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.neural.shape import Shape
from draftmux.generation import Generation
from draftmux.testing.constraints import Automaton
from draftmux.testing.laws import Book, check_law, distance
from draftmux.testing.reference import Ask, expect
from draftmux.testing.sampled import Noise, SampledDrafter
from draftmux.testing.targets import hash_law, scripted
from draftmux.testing.toys import TOYS, Toy, random_toy
from draftmux.types import Budget, Context, Draft, Emits
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.traversal import Traversal

SIZE = 6
PROMPT = (1, 2, 1)
SAMPLED = Shape(4, 1, 32, 0.0, "sampled")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2, "typical_p": 0.9},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "frequency and presence": {"frequency_penalty": 0.9, "presence_penalty": 0.4},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_word_ids": {"bad_word_ids": [[3], [1, 0]]},
    "greedy with penalties": {"temperature": 0.0, "repetition_penalty": 1.7, "logit_bias": {3: 2.0}},
    "min_new_tokens": {"min_new_tokens": 3, "stop_ids": [0, 4]},
}


def settings_of(name: str, **more: Any) -> Generation:
    return Generation(**{"temperature": 1.0, **SETTINGS[name], **more})


def draft_of(book: Any, law: Any, shape: Shape, generation: Generation, **more: Any) -> Draft:
    return grow(book.Model(law), [book.sprout(PROMPT, SIZE, shape, generation=generation, **more)])[0]


@pytest.mark.parametrize("ids", [None, (4, 1, 5)], ids=["all ids", "a draft vocabulary"])
@pytest.mark.parametrize("name", SETTINGS)
def test_q_is_the_law_of_the_request_at_every_node(book: Any, name: str, ids: tuple[int, ...] | None) -> None:
    whole, law = hash_law(4, SIZE), hash_law(4, SIZE)
    vocabulary = Vocabulary(SIZE, None if ids is None else torch.tensor(ids))
    if ids is not None:
        law = lambda prefix: [x if token in ids else -math.inf for token, x in enumerate(whole(prefix))]  # noqa: E731
    for seed in range(5):
        generation = settings_of(name, seed=seed)
        rows = lambda prefix: [whole(prefix)[token] for token in ids or range(SIZE)]  # noqa: E731
        draft = draft_of(book, rows, SAMPLED, generation, vocabulary=vocabulary)
        by_the_book = Book(Toy(law, lambda prefix: (), SIZE, prompt=PROMPT), generation)
        assert len(draft) == 4 and draft.q is not None
        for node, token in enumerate(draft.tokens.tolist()):
            expected = by_the_book.after(tuple(draft.tokens[:node].tolist()))
            assert expected is not None and np.abs(draft.q[node].numpy() - expected).max() < 1e-12
            assert expected[token] > 0


@pytest.mark.parametrize("name", ["plain", "top_p", "frequency and presence"])
def test_draws_follow_q(book: Any, name: str) -> None:
    """Pairs of drawn tokens over many seeds; the second's law is that after the first."""
    law, draws = hash_law(6, SIZE), 900
    counts: Counter[tuple[int, ...]] = Counter()
    chances: dict[tuple[int, ...], float] = {}
    by_the_book = Book(Toy(law, lambda prefix: (), SIZE, prompt=PROMPT), settings_of(name))
    sprouts = [
        book.sprout(PROMPT, SIZE, evolve(SAMPLED, depth=2), generation=settings_of(name, seed=seed), name=str(seed))
        for seed in range(draws)
    ]
    for draft in grow(book.Model(law), sprouts):
        counts[tuple(draft.tokens.tolist())] += 1
    for first, share in enumerate(by_the_book.after(())):  # type: ignore[arg-type]
        row = by_the_book.after((first,)) if share else np.zeros(SIZE)
        chances |= {(first, second): share * more for second, more in enumerate(row)}  # type: ignore[arg-type]
    assert all(chances[pair] > 0 for pair in counts)
    full = [pair for pair, chance in chances.items() if chance * draws >= 5]
    statistic = sum((counts[pair] - draws * chances[pair]) ** 2 / (draws * chances[pair]) for pair in full)
    freedom = len(full) - 1
    assert freedom >= 3 and statistic < freedom + 4.5 * math.sqrt(2 * freedom) + 10


@pytest.mark.parametrize("name", [name for name in SETTINGS if "greedy" not in name])
@pytest.mark.parametrize("shape", [Shape(5, 1, 32, 0.0, "coupled"), Shape(4, 3, 64, 0.0, "coupled")])
def test_coupled_to_a_target_of_the_same_law_every_pick_is_drafted(book: Any, name: str, shape: Shape) -> None:
    law = hash_law(4, SIZE)
    for seed in range(8):
        generation = settings_of(name, seed=seed, max_new_tokens=shape.depth)
        ask = Ask(PROMPT, evolve(generation, stop_ids=[], ignore_eos=True) if name != "min_new_tokens" else generation)
        text = expect(ask, scripted(law, SIZE), law).tokens
        found = book.paths(draft_of(book, law, shape, generation))
        assert text in found
        assert shape.top_k > 1 or len(found) == shape.depth


def test_plainly_drafted_trees_hold_fewer_of_a_sampling_target_s_picks(book: Any) -> None:
    """What coupling is for; a tree of a flat law cannot hold much else."""
    law, hits = hash_law(4, SIZE), Counter[str]()
    for seed in range(60):
        generation = Generation(temperature=2.0, seed=seed, max_new_tokens=2)
        text = expect(Ask(PROMPT, generation), scripted(law, SIZE), law).tokens
        for draw in ("coupled", "greedy"):
            hits[draw] += text in book.paths(draft_of(book, law, Shape(2, 2, 9, 0.0, draw), generation))
    assert hits["coupled"] == 60 and hits["greedy"] < 40


@pytest.mark.parametrize("name", ["plain", "temperature", "repetition_penalty", "no_repeat_ngram_size"])
def test_greedy_drafts_take_the_likeliest_of_the_processed_law(book: Any, name: str) -> None:
    law, generation = hash_law(4, SIZE), settings_of(name, seed=3)
    draft = draft_of(book, law, Shape(4, 1, 32, 0.0, "greedy"), generation)
    by_the_book = Book(Toy(law, lambda prefix: (), SIZE, prompt=PROMPT), generation)
    for node, token in enumerate(draft.tokens.tolist()):
        row = by_the_book.after(tuple(draft.tokens[:node].tolist()))
        assert row is not None and token == int(row.argmax())
    assert draft.q is None and len(draft) == 4


@pytest.mark.parametrize("shape", [SAMPLED, Shape(4, 1, 32, 0.0, "coupled"), Shape(3, 2, 32, 0.0, "coupled")])
def test_the_same_request_drafts_the_same_wherever_it_stands(book: Any, shape: Shape) -> None:
    """Alone, among others in any order, and whatever else draws random numbers."""
    law = hash_law(7, SIZE)

    def sprouts() -> list[Any]:
        return [
            book.sprout(PROMPT, SIZE, shape, generation=settings_of("plain", seed=seed), name=str(seed))
            for seed in range(6)
        ]

    alone = [grow(book.Model(law), [each])[0] for each in sprouts()]
    with torch.random.fork_rng():
        torch.manual_seed(99)
        backwards = grow(book.Model(law), sprouts()[::-1])[::-1]
    assert list(map(book.paths, alone)) == list(map(book.paths, backwards))
    assert len({tuple(draft.tokens.tolist()) for draft in alone}) > 3, "seeds must make a difference"


def test_sampled_draws_are_not_those_of_the_target(book: Any) -> None:
    """With the target's own noise every draft would be accepted where p is q, and biased where it is not."""
    law, same = hash_law(4, SIZE), 0
    for seed in range(60):
        generation = Generation(temperature=2.0, seed=seed, max_new_tokens=1)
        text = expect(Ask(PROMPT, generation), scripted(law, SIZE), law).tokens
        same += int(draft_of(book, law, SAMPLED, generation).tokens[0]) == text[0]
    assert same < 40


@pytest.mark.parametrize("value", [-math.inf, math.nan])
@pytest.mark.parametrize("draw", ["coupled", "greedy", "sampled"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_a_best_token_harms_nothing(book: Any, value: float, draw: Any, temperature: float) -> None:
    """Nothing is drawn from it; only greedy chains, which compare nothing, may go on with any token."""
    law = hash_law(4, SIZE)
    generation = Generation(temperature=temperature)
    for top_k in (1, 2) if draw != "sampled" else (1,):
        shape = Shape(4, top_k, 32, 0.0, draw)
        draft = draft_of(
            book, lambda prefix: [value] * SIZE if len(prefix) > len(PROMPT) + 1 else law(prefix), shape, generation
        )
        plain = top_k == 1 and temperature == 0 and draw != "sampled"
        assert max(draft.depths.tolist()) == (4 if plain else 2)
        assert all(0 <= token < SIZE for token in draft.tokens.tolist())
        assert draft.q is None or bool(draft.q.isfinite().all())


@pytest.mark.parametrize("shape", [SAMPLED, Shape(4, 1, 32, 0.0, "coupled"), Shape(3, 2, 32, 0.0, "greedy")])
def test_banned_tokens_are_never_drafted(book: Any, shape: Shape) -> None:
    law = hash_law(4, SIZE)
    for seed in range(10):
        draft = draft_of(book, law, shape, Generation(temperature=2.0, seed=seed, bad_word_ids=[[0], [3], [5]]))
        assert set(draft.tokens.tolist()) <= {1, 2, 4}


def test_a_constraint_is_left_to_the_engine(book: Any) -> None:
    law = hash_law(4, SIZE)
    plain, bound = (
        draft_of(book, law, SAMPLED, Generation(temperature=1.0, constraint=constraint))
        for constraint in (None, Automaton(7))
    )
    assert plain.tokens.tolist() == bound.tokens.tolist() and torch.equal(plain.q, bound.q)  # type: ignore[arg-type]


class Grown(SampledDrafter):
    """The production draws of a draft model over a toy's q, with a noise that can be enumerated."""

    def __init__(self, book: Any, toy: Toy, patch: pytest.MonkeyPatch, shape: Shape, biased: bool = False) -> None:
        self.book, self.toy, self.patch, self.shape, self.biased = book, toy, patch, shape, biased

    emits = Emits(tree=False, q=True)

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        self.patch.setattr(laws, "stream_seed", lambda seed, stream, node: node)
        self.patch.setattr(laws, "draw", lambda q, node, root: noise.draw(q, node))
        row = self.book.log_law(lambda prefix: [math.log(x) if x else -math.inf for x in self.toy.q(prefix)])
        sprout = self.book.sprout(
            context.tokens, self.toy.vocab_size, self.shape, generation=context.generation, budget=budget
        )
        [draft] = grow(self.book.Model(row), [sprout])
        return evolve(draft, q=draft.q.roll(1, -1)) if self.biased and draft.q is not None else draft


VERIFIERS = (Rejection(), Block(), Traversal(), ExactMatch())


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: type(verifier).__name__)
@pytest.mark.parametrize("name", ["plain", "temperature", "top_k", "repetition_penalty"])
def test_every_verifier_keeps_the_law_exactly(
    book: Any, monkeypatch: pytest.MonkeyPatch, verifier: Any, name: str
) -> None:
    """By enumeration of all that can be drawn, over two rounds."""
    for toy, least in ((TOYS["random"], 0.0), (random_toy(3, zeros=0.3), 0.5)):
        generation = settings_of(name, max_new_tokens=3)
        drafter = Grown(book, toy, monkeypatch, Shape(2, 1, 32, least, "sampled"))
        check_law(verifier, drafter, toy, generation, rounds=2)


def test_a_wrong_q_would_show(book: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = TOYS["random"]
    drafter = Grown(book, toy, monkeypatch, Shape(2, 1, 32, 0.0, "sampled"), biased=True)
    assert distance(Rejection(), drafter, toy) > 0.01


def test_widened_rows_lie_where_the_target_has_them() -> None:
    row = torch.tensor([1.0, 2.0])
    assert Vocabulary(4).widen(row).tolist() == [1.0, 2.0, -math.inf, -math.inf]
    assert Vocabulary(4, torch.tensor([3, 1])).widen(row).tolist() == [-math.inf, 2.0, -math.inf, 1.0]
    assert Vocabulary(2).widen(row) is row
