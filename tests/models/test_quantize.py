"""A quantised model is a model of its own: rounded throughout, and with one text however it is decoded."""

from __future__ import annotations

import copy
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.costs import CostCurve
from draftmux.errors import ModelError
from draftmux.generation import Generation
from draftmux.models import quantize as module
from draftmux.models.checkpoint import quietly
from draftmux.models.load import load_model
from draftmux.models.quantize import GROUP, NARROW, Int4Linear, Int8Linear, is_quantised, quantize
from draftmux.models.source import ModelSpec
from draftmux.testing import strategies as some
from draftmux.testing.harness import Trial
from draftmux.testing.reference import Ask

SIZES: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LAYERS = 15  # seven a block, and the output layer
KINDS = ("int8", "int4")
HALF = torch.bfloat16


def llama(dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A random Llama whose greedy text wanders."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, "tie_word_embeddings": False, **changes}))
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(0, 0.3)
    return model.to(dtype).eval().requires_grad_(False)


def quantised(kind: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A quantised Llama on the kernels, whatever the dtype: they are as right in the others, only slow."""
    model = llama(dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_has_kernel", is_quantised)
        force(model, kind)
    return model


def force(model: nn.Module, kind: Any) -> None:
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    assert module._rounded(model, layers, dict.fromkeys(layers, kind)) is None
    module._call_kernels(model)


def linears(model: nn.Module) -> list[nn.Linear]:
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def one(kind: Any, dtype: torch.dtype, inputs: int = 64, outputs: int = 48, bias: bool = False) -> tuple[Any, Any]:
    """A random layer, and the same rounded."""
    torch.manual_seed(inputs + outputs)
    layer = nn.Linear(inputs, outputs, bias=bias).to(dtype).requires_grad_(False)
    holder = nn.Sequential(copy.deepcopy(layer))
    force(holder, kind)
    return layer, holder[0]


def unpacked(layer: Any) -> torch.Tensor:
    """The weight `(outputs, inputs)` that a layer multiplies with, taken from its products."""
    return layer(torch.eye(layer.in_features)).T


def step(weight: torch.Tensor, kind: str) -> torch.Tensor:
    """Distance between neighbouring values that the rounded weight can take, for each weight."""
    if kind == "int8":
        return (weight.abs().amax(1, keepdim=True) / 127.5).expand_as(weight)
    groups = weight.unflatten(1, (-1, GROUP))
    return ((groups.amax(-1) - groups.amin(-1)) / 15).repeat_interleave(GROUP, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_rounded_to_the_nearest(kind: str) -> None:
    layer, rounded = one(kind, torch.float32)
    error = (unpacked(rounded) - layer.weight).abs()
    assert bool((error <= step(layer.weight, kind) * 0.501 + 1e-6).all())
    assert float(error.max()) > 1e-4, "nothing was rounded"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@settings(max_examples=8, deadline=None)
@given(rows=st.integers(1, 3 * NARROW), seed=st.integers(0, 99))
def test_a_row_is_multiplied_alike_in_every_pass(
    kind: str, bias: bool, dtype: torch.dtype, rows: int, seed: int
) -> None:
    _, layer = one(kind, dtype, bias=bias)
    fast = {"int4": Int4Linear, "int8": Int8Linear}[kind]
    assert type(layer) is (fast if dtype == torch.bfloat16 else nn.Linear)
    states = torch.randn(2, 2 * NARROW, 64, generator=torch.Generator().manual_seed(seed)).to(dtype)
    together = layer(states)
    alone = torch.stack([layer(row[None])[0] for row in states.flatten(0, 1)]).view_as(together)
    tolerance = 0 if kind == "int4" else 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(alone, together, rtol=tolerance, atol=tolerance)
    some = states.flatten(0, 1)[:rows]
    torch.testing.assert_close(layer(some), together.flatten(0, 1)[:rows], rtol=tolerance, atol=tolerance)
    torch_ao = nn.functional.linear(states, layer.weight, layer.bias)
    torch.testing.assert_close(together, torch_ao, rtol=tolerance, atol=tolerance)


def test_the_output_layer_may_have_any_size() -> None:
    model = llama(HALF, vocab_size=50)
    quantize(model, "int4", "tiny")
    assert type(model.lm_head) is Int8Linear
    assert {type(layer) for layer in linears(model.model)} == {Int4Linear}


def test_a_layer_that_the_int8_kernel_would_read_past_is_unpacked() -> None:
    layer, rounded = one("int8", torch.bfloat16, inputs=20, outputs=7, bias=True)
    assert type(rounded) is nn.Linear
    assert is_quantised(rounded)
    states = torch.randn(3, 20).bfloat16()
    torch.testing.assert_close(rounded(states), layer(states), rtol=0, atol=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_rounded_and_the_embedding_is_not(kind: str, tmp_path: Path) -> None:
    model = llama(torch.bfloat16, tie_word_embeddings=True)
    with quietly():
        model.save_pretrained(tmp_path)
    loaded = load_model(ModelSpec(source=str(tmp_path), device="cpu", quantization=kind)).model
    assert [is_quantised(layer) for layer in linears(loaded)] == [True] * LAYERS
    embedding = loaded.get_input_embeddings()
    assert not is_quantised(embedding)
    assert torch.equal(embedding.weight, model.get_input_embeddings().weight)
    assert loaded.dtype == torch.bfloat16
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert type(loaded.lm_head) is Int8Linear
    held = sum(layer.codes.nbytes + layer.scales.nbytes for layer in linears(loaded))
    assert held < sum(layer.weight.nbytes for layer in linears(model)) * {"int8": 0.56, "int4": 0.36}[kind]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_near_those_of_the_full_weights(kind: Any, dtype: torch.dtype) -> None:
    ids = torch.arange(20)[None]
    full, rounded = (model(ids).logits.double() for model in (llama(), quantised(kind, dtype)))
    error = float((rounded - full).std() / full.std())
    assert 0.001 < error < {"int8": 0.1, "int4": 0.6}[kind], error


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_model_passes_the_self_check(kind: Any) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        TransformersBackend(self_check=True).over(quantised(kind, dtype))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(data=st.data(), count=st.integers(1, 4), max_batch=st.integers(1, 3))
def test_speculation_writes_the_text_of_the_quantised_model(kind: Any, data: Any, count: int, max_batch: int) -> None:
    model = quantised(kind)
    target: Any = TransformersBackend(self_check=False).over(model)
    target._curve = CostCurve((1,), (1.0,))  # measured, budgets would differ from run to run
    prompts = [data.draw(some.prompts(SIZES["vocab_size"])) for _ in range(count)]
    lengths = [data.draw(st.integers(6, 14)) for _ in prompts]
    asks = [
        Ask(
            prompt,
            Generation(max_new_tokens=length, temperature=data.draw(st.sampled_from((0.0, 1.0))), seed=3),
            str(i),
        )
        for i, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]

    def law(prefix: tuple[int, ...]) -> list[float]:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([prefix]), use_cache=False).logits[0, -1].tolist()  # type: ignore[no-any-return]

    trial = Trial.prepare(target, asks, law)
    trial.check(data.draw(some.drafter_sets(SIZES["vocab_size"])), data.draw(some.routers()), max_batch)


def test_a_layer_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchao import quantization as ao

    def skipping(model: nn.Module, config: Any, wanted: Any) -> None:
        ao.quant_api.quantize_(model, config, lambda layer, name: wanted(layer, name) and "down" not in name)

    monkeypatch.setattr(ao, "quantize_", skipping)
    with pytest.raises(ModelError, match=r"left out 2 of 15 layers, the first is model\.layers\.0\.mlp\.down_proj"):
        quantize(llama(), "int8", "tiny")


def test_a_fault_of_torchao_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchao import quantization as ao

    monkeypatch.setattr(ao, "quantize_", lambda *arguments: 1 / 0)
    with pytest.raises(ModelError, match="model 'tiny', quantization int4: torchao failed: division by zero; use"):
        quantize(llama(torch.bfloat16), "int4", "tiny")


def test_without_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    quantize(llama(), "none", "tiny")
    with pytest.raises(ModelError, match=r"quantization int8 needs .* pip install 'draftmux\[quantized\]'"):
        quantize(llama(), "int8", "tiny")


@pytest.mark.parametrize(
    ("kind", "model", "said"),
    [
        ("int8", lambda: llama(torch.float64), "no kernels for dtype float64; set dtype to bfloat16, float16"),
        ("fp8", llama, "needs a CUDA device of capability 8.9 or higher, and cpu is none; use int8 or int4"),
        ("int8", lambda: llama().to("meta"), "runs on cpu and cuda, and the model is on meta"),
        ("int4", llama, "its kernels are made for dtype bfloat16, got float32; set dtype: bfloat16, or use int8"),
        ("int4", lambda: llama(HALF, intermediate_size=80), r"2 of 14 .* is model\.layers\.0\.mlp\.down_proj \(80 "),
        (
            "int8",
            lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=48, n_embd=32, n_layer=1, n_head=2)),
            r"GPT2LMHeadModel keeps 4 matrices outside of linear layers, the first is transformer\.h\.0\.attn\.c_attn",
        ),
    ],
)
def test_what_cannot_be_quantised_is_refused(kind: Any, model: Any, said: str) -> None:
    refused = model()
    with pytest.raises(ModelError, match=said):
        quantize(refused, kind, "tiny")
    assert not any(map(is_quantised, linears(refused))), "half of a model was rounded"


def test_several_processes_are_refused(tmp_path: Path) -> None:
    spec = ModelSpec(source=str(tmp_path), quantization="int8")
    with pytest.raises(ModelError, match="quantization int8 does not go with several processes; leave it out"):
        load_model(spec, processes=2)


def test_what_a_gpu_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, capability = torch.device("cuda:0"), [8, 6]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: tuple(capability))
    fault = module._unfit_device(gpu, torch.bfloat16, "fp8")
    assert fault == "it needs a CUDA device of capability 8.9 or higher, and cuda:0 is of 8.6; use int8 or int4"
    capability[1] = 9
    assert module._unfit_device(gpu, torch.bfloat16, "fp8") is None
    assert module._unfit_device(gpu, torch.bfloat16, "int4") is None
    assert module._unfit_device(gpu, torch.float16, "int8") is None


def test_fp8_rounds_as_on_a_gpu() -> None:
    """The numbers are the same anywhere; only the devices differ."""
    full, model = llama(), llama()
    force(model, "fp8")
    assert all(map(is_quantised, linears(model)))
    ids = torch.arange(20)[None]
    error = float((model(ids).logits - full(ids).logits).std() / full(ids).logits.std())
    assert 0.001 < error < 0.3, error


def test_only_the_noise_of_an_import_is_silenced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        logging.getLogger("torchao").warning("Failed to load /x/_C.so: no such library")
        logging.getLogger("torch.utils._pytree").warning("%s is an Enum subclass", "<enum 'KernelPreference'>")
        logging.getLogger("torchao").warning("Something else")
        logging.getLogger("torch.utils._pytree").warning("<enum 'Mine'> is an Enum subclass")
    assert caplog.messages == ["Something else", "<enum 'Mine'> is an Enum subclass"]
