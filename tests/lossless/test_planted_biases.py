"""Drafts that look right and bend the law: each is caught by the check that the right forms pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from attrs import evolve, frozen

from draftmux.engine.guard import Guard
from draftmux.engine.step import Parts
from draftmux.errors import PluginError
from draftmux.noise import Stream
from draftmux.testing.laws import Bias, Trial, check_biased, distance
from draftmux.testing.sampled import Likeliest, SampledDrafter, SampledTree
from draftmux.testing.toys import random_toy
from draftmux.tree import ROOT
from draftmux.types import Draft, Emits
from draftmux.verifiers.block import Block
from draftmux.verifiers.exact_match import ExactMatch
from draftmux.verifiers.rejection import Rejection
from draftmux.verifiers.residual import normalised
from draftmux.verifiers.traversal import Traversal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from draftmux.protocols import Verifier
    from draftmux.testing.sampled import Noise
    from draftmux.types import Budget, Context

TOY = random_toy(18)
# Drafts. Each gets the prefix, the draft's law there, and noise.

Node = tuple[int, int, Any]  # parent, token, row of q


@frozen(eq=False)
class Planted(SampledDrafter):
    emits = Emits(tree=True, q=True)
    nodes: Callable[[Context, Tensor, Any], list[Node]]

    def grow(self, context: Context, budget: Budget, noise: Noise) -> Draft:
        nodes = self.nodes(context, law_after(context), noise) if budget.max_depth else []
        if not nodes:
            return Draft.empty()
        parents, tokens, rows = zip(*nodes, strict=True)
        return Draft(tokens, parents, torch.stack(rows))


def law_after(context: Context, *path: int) -> Tensor:
    return torch.tensor(TOY.q((*context.tokens.tolist(), *path)), dtype=torch.float64)


def rest(law: Tensor, token: int) -> Tensor:
    return normalised(law * (torch.arange(len(law)) != token), otherwise=law)


def point(law: Tensor, token: int) -> Tensor:
    return (torch.arange(len(law)) == token).to(law.dtype)


def best(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, int(law.argmax()), law)]


def two_best(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, token, law) for token in law.topk(2).indices.tolist()]


def colder(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, noise.draw(law**2, 0), law)]


def dropped_if_unlikely(context: Context, law: Tensor, noise: Any) -> list[Node]:
    token = noise.draw(law, 0)
    return [(ROOT, token, law)] if law[token] > 0.4 else []


def likelier_of_two(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, max((noise.draw(law, key) for key in range(2)), key=lambda token: law[token]), law)]


def sorted_by_q(context: Context, law: Tensor, noise: Any) -> list[Node]:
    drawn = [noise.draw(law, key) for key in range(3)]
    return [(ROOT, token, law) for token in sorted(drawn, key=lambda token: -law[token])]


def better_of_two_drafters(context: Context, law: Tensor, noise: Any) -> list[Node]:
    other = law.flip(0)
    drawn = [(noise.draw(law, 0), law), (noise.draw(other, 1), other)]
    return [(ROOT, *max(drawn, key=lambda one: float(one[1][one[0]])))]


def cut_by_cumulative_probability(context: Context, law: Tensor, noise: Any) -> list[Node]:
    """Two branches of two; the two nodes with the largest products of q stay."""
    scored: list[tuple[float, int, tuple[int, ...], Tensor]] = []
    for branch in range(2):
        token = noise.draw(law, 2 * branch)
        after = law_after(context, token)
        below = noise.draw(after, 2 * branch + 1)
        scored += [(float(law[token]), branch, (token,), law)]
        scored += [(float(law[token] * after[below]), branch, (token, below), after)]
    kept = sorted(sorted(scored, key=lambda one: -one[0])[:2], key=lambda one: (one[1], len(one[2])))
    deep = kept[0][1] == kept[1][1]
    return [(ROOT, kept[0][2][-1], kept[0][3]), (0 if deep else ROOT, kept[1][2][-1], kept[1][3])]


def drawn_with_the_number_that_tests_it(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, noise.chances.choose((Stream.ACCEPT, noise.root, 0), law), law)]


def drawn_with_the_number_of_the_residual(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, noise.chances.choose((Stream.RESIDUAL, noise.root, ROOT), law), law)]


def distinct_with_one_q(context: Context, law: Tensor, noise: Any) -> list[Node]:
    first = noise.draw(law, 0)
    return [(ROOT, first, law), (ROOT, noise.draw(rest(law, first), 1), law)]


def twins_dropped(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, token, law) for token in dict.fromkeys(noise.draw(law, key) for key in range(3))]


def twin_of_a_copy_merged(context: Context, law: Tensor, noise: Any) -> list[Node]:
    copied, drawn = 1, noise.draw(law, 0)
    return [(ROOT, copied, point(law, copied)), *([(ROOT, drawn, law)] if drawn != copied else [])]


def twin_of_a_copy(context: Context, law: Tensor, noise: Any) -> list[Node]:
    return [(ROOT, 1, point(law, 1)), (ROOT, noise.draw(law, 0), law)]


def coupled_with_q(context: Context, law: Tensor, noise: Any) -> list[Node]:
    first = noise.pick(law, 0)
    after = law_after(context, first)
    return [(ROOT, first, law), (0, noise.pick(after, 1), after)]


CHAIN, TWO = SampledTree(TOY.q, (1, 1)), SampledTree(TOY.q, (2,))
RIGHT = (Rejection(), CHAIN)


def bent(at_least: float, nodes: Any, right: SampledDrafter = TWO, verifier: Verifier | None = None) -> Bias:
    verifier = verifier or Rejection()
    return Bias(at_least, TOY, (verifier, Planted(nodes)), (verifier, right))


BIASES = {
    "the likeliest token with the soft q": bent(0.2, best, Likeliest(TOY.q, (1,))),
    "the two likeliest tokens with the soft q": bent(0.2, two_best, Likeliest(TOY.q, (2,))),
    "drawn at another temperature": bent(0.14, colder),
    "drawn, looked at, dropped": bent(0.15, dropped_if_unlikely),
    "the likelier of two draws stays": bent(0.15, likelier_of_two),
    "siblings sorted by q": bent(0.2, sorted_by_q),
    "the better of two drafters' draws stays": bent(0.15, better_of_two_drafters),
    "a sampled tree cut by cumulative probability": bent(0.11, cut_by_cumulative_probability),
    "drawn with the number that tests it": bent(0.11, drawn_with_the_number_that_tests_it),
    "drawn with the number of the residual": bent(0.26, drawn_with_the_number_of_the_residual),
    "drawn without replacement, one q for all": bent(0.05, distinct_with_one_q),
    "drawn independently, twins dropped": bent(0.028, twins_dropped),
    "the twin of a copy is merged into it": bent(0.017, twin_of_a_copy_merged, Planted(twin_of_a_copy)),
}


@pytest.mark.parametrize("name", BIASES)
def test_the_bias_is_caught(name: str) -> None:
    check_biased(BIASES[name])


@pytest.mark.parametrize("verifier", [Block(), Traversal()], ids=["block", "traversal"])
def test_a_coupled_draft_must_not_claim_a_q(verifier: Verifier) -> None:
    """One round is right; the next draws with numbers that a verifier which looks ahead has looked at."""
    drafter = Planted(coupled_with_q)
    check_biased(Bias(0.005, TOY, (verifier, drafter), (verifier, CHAIN), rounds=2))
    check_biased(Bias(0.005, TOY, (verifier, drafter), (Rejection(), drafter), rounds=2))
    assert distance(verifier, drafter, TOY) < 1e-9


def test_a_round_that_is_redone_when_nothing_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trial.rounds

    def redone(trial: Trial, count: int) -> Iterator[tuple[tuple[int, ...], float]]:
        for run, probability in original(trial, count):
            if len(run) > 1:
                yield run, probability
            else:
                yield from ((other, probability * more) for other, more in original(trial, count))

    assert distance(*RIGHT, TOY) < 1e-9
    monkeypatch.setattr(Trial, "rounds", redone)
    assert distance(*RIGHT, TOY) > 0.02


def fails_on_some_draws(context: Context, law: Tensor, noise: Any) -> list[Node]:
    token = noise.draw(law, 0)
    if token == 2:
        raise ValueError("no such row in the table")
    return [(ROOT, token, law)]


def test_a_draft_that_failed_after_it_was_drawn_is_a_draft_that_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No policy can keep the law of a sampled drafter whose failures depend on its draws: under `skip` too such a
    request ends in an error. Exact match can go on."""
    original, drafter = Trial._parts, Planted(fails_on_some_draws)
    monkeypatch.setattr(Trial, "_parts", lambda trial, drafter: evolve(original(trial, drafter), guard=Guard("skip")))
    for verifier in (Rejection(), Block(), Traversal()):
        with pytest.raises(PluginError, match="no such row in the table"):
            distance(verifier, drafter, TOY)
    assert distance(ExactMatch(), drafter, TOY) < 1e-9
    monkeypatch.setattr(Parts, "guard_of", lambda parts, name: parts.guard)
    for verifier in (Rejection(), Traversal()):
        assert distance(verifier, drafter, TOY) > 0.1


def test_exact_match_forgives_every_one_of_them() -> None:
    """It never looks at q, and draws from p alone."""
    for name, bias in BIASES.items():
        assert distance(ExactMatch(), bias.wrong[1], TOY) < 1e-9, name
