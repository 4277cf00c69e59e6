"""Regressions against a plain reference, thresholds by brute force, and what a probe must not learn."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from draftmux.routers.linear_probe.fitting import Problem, best_threshold, fit, quality


def data(seed: int, count: int = 400, size: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    states = rng.normal(0, 3, (count, size))
    labels = rng.random(count) < 1 / (1 + np.exp(-states @ np.array([0.4, -0.2, 0.1, 0.0, 0.3, -0.1])))
    return torch.tensor(states), torch.tensor(labels)


def test_weights_are_those_of_a_plain_reference() -> None:
    """In whatever order penalties are given."""
    states, labels = data(1)
    scale = states.square().mean(0).sqrt().numpy()
    own, wanted = states.numpy() / scale, labels.numpy().astype(float)

    def loss(weights: Any, penalty: float) -> float:
        scores = own @ weights
        return float(np.mean(np.logaddexp(0, scores) - wanted * scores) + penalty / 2 * weights @ weights)

    penalties = [1e-3, 1e-1, 1e-2]
    for penalty, found in zip(penalties, fit(states, torch.stack((labels, ~labels), 1), penalties), strict=True):
        expected = minimize(loss, np.zeros(6), (penalty,), tol=1e-12).x / scale
        assert np.allclose(found[:, 0], expected, atol=1e-4)
        assert torch.allclose(found[:, 0], -found[:, 1], atol=1e-6)  # without a bias both ways are one


@given(seed=st.integers(0, 999), columns=st.sampled_from((1, 3, 17)))
def test_the_gradient_is_that_of_the_objective(seed: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    labels = (torch.rand(30, columns, generator=generator) < 0.3).double()
    weights = torch.randn(4, columns, generator=generator, dtype=torch.float64, requires_grad=True)
    value, gradient = Problem(states, labels).at(weights.detach(), 0.1)
    errors = torch.nn.functional.binary_cross_entropy_with_logits(states @ weights, labels, reduction="none")
    loss = errors.mean(0).sum() + 0.05 * weights.square().sum()
    loss.backward()
    assert value == pytest.approx(loss.item()) and torch.allclose(gradient, weights.grad)


def test_there_is_no_bias() -> None:
    """A state of zeros scores one half, however uneven the labels are; scaled states give the same scores."""
    states, labels = data(2)
    rare = labels & (torch.arange(len(labels)) % 5 == 0)
    [weights] = fit(states, rare[:, None], [1e-3])
    assert float((torch.zeros(6, dtype=torch.float64) @ weights).sigmoid()) == 0.5
    [scaled] = fit(states * 50, rare[:, None], [1e-3])
    assert torch.allclose((states * 50) @ scaled, states @ weights, atol=1e-6)


def test_shuffled_labels_teach_nothing() -> None:
    states, labels = data(3, 4000)
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(0))
    for own, low, high in ((labels, 0.75, 1.0), (labels[order], 0.45, 0.55)):
        [weights] = fit(states[:3000], own[:3000, None], [1e-2])
        scores = (states[3000:] @ weights[:, 0]).sigmoid().numpy()
        found = quality(scores, own[3000:].numpy(), 0.5)
        assert found is not None and low <= found.auc <= high


def f1(scores: list[float], labels: list[bool], threshold: float) -> float:
    chosen = [score >= threshold for score in scores]
    right = sum(c and label for c, label in zip(chosen, labels, strict=True))
    return 2 * right / max(sum(chosen) + sum(labels), 1)


@given(rows=st.lists(st.tuples(st.sampled_from((0.1, 0.3, 0.4, 0.8, 0.9)), st.booleans()), min_size=1, max_size=14))
def test_the_threshold_is_the_best_and_of_the_best_the_highest(rows: list[tuple[float, bool]]) -> None:
    scores, labels = [score for score, _ in rows], [label for _, label in rows]
    found = best_threshold(np.array(scores), np.array(labels))
    borders = sorted(set(scores))
    tried = [borders[0], *((low + high) / 2 for low, high in itertools.pairwise(borders))]
    best = max(f1(scores, labels, threshold) for threshold in tried)
    assert f1(scores, labels, found) == pytest.approx(best)
    assert found == pytest.approx(max(t for t in tried if f1(scores, labels, t) > best - 1e-12))


def test_quality_by_hand() -> None:
    scores, labels = np.array([0.9, 0.8, 0.4, 0.2]), np.array([True, False, True, False])
    found = quality(scores, labels, 0.5)
    assert found is not None and (found.precision, found.recall, found.f1) == (0.5, 0.5, 0.5)
    assert found.auc == 0.75 and (found.positives, found.negatives) == (2, 2)
    assert quality(scores, np.ones(4, dtype=bool), 0.5) is None
