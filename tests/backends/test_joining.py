"""Layers that read one tensor are multiplied as one, whatever they are called, and give what they gave."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from draftmux.backends.static.joining import Joined, JoinedLinear, joint, readers_of_one
from draftmux.backends.static.packing import PackedLinear, pack, packable
from draftmux.testing.targets import tiny_model

if TYPE_CHECKING:
    from torch import Tensor


class Odd(nn.Module):
    """Layers under no usual name: two that read one tensor, one that reads another, one that is called twice."""

    device = torch.device("cpu")

    def __init__(self, biases: tuple[bool, bool] = (False, False)) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 8)
        self.one, self.two = (nn.Linear(8, size, bias=bias) for size, bias in zip((8, 5), biases, strict=True))
        self.other, self.twice = nn.Linear(8, 3), nn.Linear(8, 8)

    def forward(self, input_ids: Tensor, **kwargs: Any) -> tuple[Tensor, ...]:
        states = self.embed(input_ids)
        one = self.one(states)
        other = self.other(one)  # somebody else is called in between
        return one, self.two(states), other, self.twice(self.twice(one))


@pytest.mark.parametrize("bias", [False, True])
def test_readers_are_found_by_what_they_read(bias: bool) -> None:
    model = Odd((bias, bias))
    assert readers_of_one(model, packable) == [[model.one, model.two]]
    assert not any(module._forward_pre_hooks for module in model.modules())


class Parallel(nn.Module):
    """Attention and MLP that read one tensor, as GPT-J's do; one layer comes twice, and the tensor is written to."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 8)
        self.q, self.k, self.twice, self.late, self.later = (nn.Linear(8, 8, bias=False) for _ in range(5))
        self.up, self.gate = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, input_ids: Tensor, **kwargs: Any) -> tuple[Tensor, ...]:
        states = self.embed(input_ids).clone()
        found = [layer(states) for layer in (self.q, self.twice, self.up, self.k, self.twice, self.gate)]
        states.mul_(2)
        return (*found, self.late(states), self.later(states))


def test_a_reader_that_does_not_fit_keeps_nobody_apart() -> None:
    model = Parallel()
    found = readers_of_one(model, packable)
    assert found == [[model.q, model.k], [model.up, model.gate], [model.late, model.later]]
    packed = copy.deepcopy(model).eval()
    pack(packed)
    with torch.inference_mode():
        ids = torch.randint(0, 4, (2, 3))
        for one, two in zip(packed(ids), model(ids), strict=True):
            torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


def test_layers_with_and_without_bias_are_left_apart() -> None:
    assert readers_of_one(Odd((True, False)), packable) == []


def test_a_packed_model_gives_what_it_gave() -> None:
    for bias in (False, True):
        model = Odd((bias, bias)).eval()
        packed = copy.deepcopy(model)
        pack(packed)
        assert isinstance(packed.one, JoinedLinear)
        assert isinstance(packed.other, PackedLinear)
        with torch.inference_mode():
            for rows in (1, 3, 20):
                ids = torch.randint(0, 4, (2, rows))
                for found, expected in zip(packed(ids), model(ids), strict=True):
                    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "mistral"])
def test_attention_and_mlp_of_usual_models_are_joined(name: str) -> None:
    model = copy.deepcopy(tiny_model(name)).float()
    layers = model.config.get_text_config().num_hidden_layers
    pack(model)
    joined = {id(module.joint) for module in model.modules() if isinstance(module, JoinedLinear)}
    assert len(joined) == 2 * layers  # q, k and v; gate and up


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_any_order_of_calls_gives_each_layer_its_product(calls: list[tuple[int, int]]) -> None:
    layers = [nn.Linear(4, size, bias=False) for size in (2, 3, 4)]
    multiply = joint(layers)
    joined = Joined(multiply, [layer.out_features for layer in layers])
    parts = [JoinedLinear(layer, joined, index) for index, layer in enumerate(layers)]
    inputs = [torch.randn(2, 4) for _ in range(3)]
    with torch.inference_mode():
        for layer, which in calls:
            torch.testing.assert_close(parts[layer](inputs[which]), layers[layer](inputs[which]))


def test_nothing_is_kept_after_the_last_reader() -> None:
    layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
    calls = []
    joined = Joined(lambda states: calls.append(1) or joint(layers)(states), [4, 4])  # type: ignore[func-returns-value]
    states = torch.randn(1, 4)
    joined.part(0, states), joined.part(1, states)
    assert len(calls) == 1
    assert joined._read is None
    assert not joined._parts
