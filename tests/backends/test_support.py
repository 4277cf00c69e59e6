"""Targets that cannot run draft trees are refused when they are loaded, with the reason; those that can, pass."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers as hf

from draftmux.backends.cache import SlotCache
from draftmux.backends.masks import Feed
from draftmux.backends.static import attention
from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.errors import ModelError
from draftmux.protocols import Row
from draftmux.testing.targets import MODELS, tiny_model, tiny_target
from draftmux.types import Draft, Tap

if TYPE_CHECKING:
    from draftmux.backends.target import Target

SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def llama(**changes: Any) -> Any:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, **changes}))


def build(model: Any, *taps: Tap, **options: Any) -> Target:
    return TransformersBackend(**options).over(model.eval(), taps=taps)


def recurrent() -> Any:
    sizes = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
    return hf.MambaForCausalLM(hf.MambaConfig(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=0))


def hybrid() -> Any:
    linear = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    }
    kinds = ["linear_attention", "full_attention"]
    experts = {
        "num_experts": 2,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
    }
    return hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**SIZES, **linear, **experts, layer_types=kinds, head_dim=8))


def alibi() -> Any:
    sizes = {"vocab_size": 32, "hidden_size": 32, "n_layer": 2, "n_head": 4}
    return hf.BloomForCausalLM(hf.BloomConfig(**sizes, bos_token_id=0, eos_token_id=0, pad_token_id=0))


def encoder_decoder() -> Any:
    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes, decoder_start_token_id=0))


def stretched() -> Any:
    factors = [1.0] * 4
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": factors, "long_factor": factors}
    return llama(rope_parameters={**rope, "original_max_position_embeddings": 16})


def chunked() -> Any:
    model = llama()
    model.config.layer_types = ["chunked_attention", "full_attention"]
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (recurrent, "recurrent state, which cannot be rewound"),
        (hybrid, "recurrent state, which cannot be rewound"),
        (alibi, r"Bloom\w+"),
        (encoder_decoder, "encoder-decoder"),
        (stretched, "rotary embeddings of type longrope"),
        (chunked, "layers of kind chunked_attention"),
    ],
)
def test_what_cannot_run_trees_is_refused_with_the_reason(make: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        build(make())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sound_targets_pass_their_self_check(name: str, dtype: torch.dtype) -> None:
    build(copy.deepcopy(tiny_model(name)).to(dtype))


def no_move(self: SlotCache, row: int, source: Any, target: int) -> None:
    """Compaction that leaves the accepted path where it stood."""


def move_one_off(self: SlotCache, row: int, source: Any, target: int) -> None:
    for pool in self.pools:
        pool.data[:, row, :, target : target + len(source)] = pool.data[:, row][:, :, [slot - 1 for slot in source]]


@pytest.mark.parametrize("fault", [no_move, move_one_off])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in MODELS for dtype in (torch.float64, torch.float32)),
        ("llama", torch.bfloat16),  # rounding of 16 bits hides one row in some tiny models
    ],
)
def test_the_self_check_sees_wrong_compaction(
    name: str, dtype: torch.dtype, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotCache, "move", fault)
    with pytest.raises(ModelError, match="differ from sequential decoding"):
        build(copy.deepcopy(tiny_model(name)).to(dtype))


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3"])
def test_the_self_check_sees_positions_taken_from_slots(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Feed, "positions", property(lambda self: self.start + torch.arange(len(self.tokens)).numpy()))
    with pytest.raises(ModelError, match="position ids"):
        tiny_target(name, self_check=True)


def test_an_unsupported_attention_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    monkeypatch.setattr(type(model), "_supports_sdpa", False)
    monkeypatch.setattr(
        type(model), "set_attn_implementation", lambda self, name: (_ for _ in ()).throw(ValueError(name))
    )
    with pytest.raises(ModelError, match="attention: eager"):
        build(model)


def test_eager_attention_gives_the_same_text() -> None:
    prompt = [3, 1, 4, 1, 5]
    logits = []
    for kind in ("sdpa", "eager"):
        target = tiny_target("gemma3", attention=kind)
        handle = target.open(prompt).sequence
        logits.append(target.score([Row(handle, prompt[-1], Draft.from_candidates([[1, 2], [1, 3], [4]]))])[0].logits)
    # transformers' eager attention does its softmax in float32, whatever the model's dtype.
    assert torch.allclose(logits[0], logits[1], atol=1e-5)


@pytest.mark.parametrize(
    ("tap", "reason"), [(Tap(2, "attn_out"), "layers 0 to 1"), (Tap(-3, "mlp_out"), "layers 0 to 1")]
)
def test_taps_that_are_not_there(tap: Tap, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        build(llama(), tap)


def test_the_middle_of_the_stream_is_refused_where_there_is_none() -> None:
    model = hf.Olmo2ForCausalLM(hf.Olmo2Config(**SIZES))
    with pytest.raises(ModelError, match="no such place"):
        build(model, Tap(0, "resid_mid"))
    build(model, Tap(0, "attn_out"), self_check=False)


def test_cost_is_measured_and_interpolated() -> None:
    target = tiny_target("llama", positions=64)
    costs = [target.cost(nodes) for nodes in (0, 1, 2, 5, 63, 500)]
    assert all(cost > 0 for cost in costs)
    low, high = sorted((target.cost(3), target.cost(7)))
    assert low <= target.cost(5) <= high
    assert target.open([1, 2]).sequence.row == 0  # the measurement has left no sequence behind


@pytest.mark.parametrize("backend", [TransformersBackend, StaticBackend])
def test_an_attention_that_drops_something_is_noticed(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Squashed scores are no mask or position: trees and steps agree, and both are wrong."""
    monkeypatch.setattr(attention, "masked_attention", partial(unsquashed, attention.masked_attention))
    if backend is StaticBackend:
        with pytest.raises(ModelError, match="one forward over the same tokens"):
            backend().over(gemma2())
    else:
        backend(attention="eager").over(gemma2())


def gemma2() -> Any:
    own = {"head_dim": 8, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 0.5, "sliding_window": 4}
    model = hf.Gemma2ForCausalLM(hf.Gemma2Config(**SIZES, **own)).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


def unsquashed(original: Any, *operands: Any) -> Any:
    *others, softcap = operands
    return original(*others, 0.0 if attention._running.current is not None else softcap)


def test_squashed_scores_are_what_transformers_makes_of_them() -> None:
    model = gemma2().double()
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.inference_mode():
        model.set_attn_implementation("eager")
        expected = model(input_ids=tokens, use_cache=False).logits[0]
        target = StaticBackend().over(model)
        found = model(input_ids=tokens, use_cache=False).logits[0]
        handle = target.open(tokens[0, :4].tolist()).sequence
        scores = target.score([Row(handle, 1, Draft.chain([5, 9, 2, 6]))])[0].logits
    assert torch.allclose(found, expected, atol=1e-5)  # eager makes its softmax in float32
    assert torch.allclose(scores, expected[3:], atol=1e-5)


def sinks() -> Any:
    own = {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4}
    return hf.GptOssForCausalLM(hf.GptOssConfig(**SIZES, **own, layer_types=["sliding_attention", "full_attention"]))


def falcon() -> Any:
    sizes = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return hf.FalconForCausalLM(hf.FalconConfig(**sizes, bos_token_id=None, eos_token_id=None))


@pytest.mark.parametrize(
    ("make", "reason"),
    [(sinks, r"s_aux.*use: transformers, attention: eager"), (falcon, "use: transformers")],
)
def test_an_attention_that_static_does_not_know_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        StaticBackend().over(make().eval())


def test_sinks_run_on_transformers_eager_attention() -> None:
    build(sinks(), attention="eager")


def test_a_mixture_of_experts_has_no_exact_numerics() -> None:
    torch.manual_seed(1)
    model = hf.MixtralForCausalLM(hf.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    StaticBackend().over(copy.deepcopy(model))
    with pytest.raises(ModelError, match="other bits than plain decoding"):
        StaticBackend(numerics="exact").over(model)  # type: ignore[call-arg]


@pytest.mark.parametrize("backend", ["transformers", "static"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_what_a_pass_left_in_the_scratch_does_not_come_through(backend: str, poison: float) -> None:
    """Of rows of different length the shorter sees slots that a rejected draft, or a sequence before it, wrote."""
    target = tiny_target("llama", backend=backend)
    long, gone = target.open(list(range(1, 30))).sequence, target.open(list(range(1, 25))).sequence
    target.score([Row(gone, 24, Draft.chain([3] * 9))])
    target.close(gone)
    short = target.open([1, 2]).sequence
    target.score([Row(short, 2, Draft.chain([5] * 6))])
    target.commit(short, ())
    with torch.inference_mode():
        for pool in target.cache.pools:
            pool.data[:, short.row, :, short.length : 33] = poison  # as far as the sequence before it went
    found = target.score([Row(long, 29, Draft.empty()), Row(short, 3, Draft.empty())])[1].logits
    assert found.isfinite().all()


def packed() -> Any:
    return StaticBackend().over(copy.deepcopy(tiny_model("llama")).float())


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.to(torch.bfloat16),
        lambda model: model.state_dict(),
        copy.deepcopy,
        pickle.dumps,
    ],
    ids=["to", "state_dict", "deepcopy", "pickle"],
)
def test_a_packed_model_says_what_it_cannot_do(use: Any) -> None:
    with pytest.raises(ModelError, match="pack: false"):
        use(packed().model)


def test_a_packed_model_still_runs_by_itself() -> None:
    target, tokens = packed(), torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode():
        expected = copy.deepcopy(tiny_model("llama")).float()(input_ids=tokens).logits
        assert torch.allclose(target.model.to("cpu")(input_ids=tokens).logits, expected, atol=1e-4)
    assert not target.pristine
    assert not StaticBackend(self_check=False).over(target.model).pristine


def test_calls_of_the_model_from_outside_leave_taps_alone() -> None:
    tap = Tap(0, "resid_post")
    target = tiny_target("llama", backend="static", taps=(tap,))
    handle = target.open([1, 2, 3]).sequence
    with torch.inference_mode():
        target.model(input_ids=torch.tensor([[4, 5, 6, 7]]))
    assert not target.recorder.take()
    assert target.score([Row(handle, 3, Draft.empty())])[0].taps[tap].shape == (1, 32)


def test_a_pass_within_a_pass_leaves_the_outer_one_alone() -> None:
    outer, inner = (tiny_target("llama", backend="static") for _ in range(2))
    expected = [3, Draft.chain([4])]
    handle, other = outer.open([1, 2, 3]).sequence, inner.open([5, 6]).sequence
    alone = outer.score([Row(handle, *expected)])[0].logits  # type: ignore[arg-type]
    hook = outer.model.model.layers[0].register_forward_hook(
        lambda *_: inner.score([Row(other, 6, Draft.empty())]) and None
    )
    nested = outer.score([Row(handle, *expected)])[0].logits  # type: ignore[arg-type]
    hook.remove()
    assert torch.equal(alone, nested)


def test_exact_numerics_on_a_short_model() -> None:
    StaticBackend(numerics="exact").over(copy.deepcopy(tiny_model("gpt2", 16)).float())  # type: ignore[call-arg]


def test_layers_that_could_share_but_do_not_are_no_reason_to_refuse() -> None:
    model = llama()
    model.config.kv_sharing_modes = [None, "store"]
    build(model)
    model.config.kv_sharing_modes = ["store", "reuse"]
    with pytest.raises(ModelError, match="shares keys and values"):
        build(model)
