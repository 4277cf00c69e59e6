"""Targets small enough to know everything about: logit tables, pseudo-random laws, tiny random models. No downloads."""

from __future__ import annotations

import copy
import hashlib
import zlib
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from draftmux.backends.scripted import Law, ScriptedTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from draftmux.backends.target import Target
    from draftmux.types import Tap

MODELS = ("llama", "qwen3", "gemma3", "mistral", "gpt2")
BACKENDS = ("transformers", "static")
MODEL_VOCAB = 40
WINDOW = 8
SALT = 5  # of the weights; with this one the greedy text of every model wanders


def random_table(seed: int, vocab_size: int) -> list[list[float]]:
    """A TABLE: logits `(V, V)` of the next token by the last one, every token with a mass worth testing."""
    return np.random.default_rng(seed).normal(0, 1.5, (vocab_size, vocab_size)).tolist()  # type: ignore[no-any-return]


def table_law(table: Sequence[Sequence[float]]) -> Law:
    """The law that looks up the last token."""
    return lambda prefix: table[prefix[-1]]


def hash_law(seed: int, vocab_size: int, levels: int = 1 << 16) -> Law:
    """Logits in [-4, 4] that depend on the whole prefix; few `levels` give many exact ties for the best."""
    salt = seed.to_bytes(8, "little")

    def law(prefix: tuple[int, ...]) -> Sequence[float]:
        digest = hashlib.shake_256(salt + np.array(prefix, dtype=np.int64).tobytes()).digest(2 * vocab_size)
        words = np.frombuffer(digest, dtype=np.uint16).astype(np.int64) % levels
        return (words * (8 / max(levels - 1, 1)) - 4).tolist()  # type: ignore[no-any-return]

    return law


def script_law(script: Sequence[int], vocab_size: int, last: int) -> Law:
    """The law that writes `script` (prompt included) whatever happens, and `last` after its end."""

    def law(prefix: tuple[int, ...]) -> Sequence[float]:
        logits = [0.0] * vocab_size
        logits[script[len(prefix)] if len(prefix) < len(script) else last] = 9.0
        return logits

    return law


def scripted(
    law: Law, vocab_size: int, *, eos_ids: Iterable[int] = (), max_length: int | None = None, tokenizer: Any = None
) -> ScriptedTarget:
    """A bound target with that law. Like a real one it has no logits for a token beyond `max_length`: it raises."""
    return ScriptedTarget(
        law if max_length is None else _limited(law, max_length),
        vocab_size,
        frozenset(eos_ids),
        max_length,
        tokenizer=tokenizer,
    )


def _limited(law: Law, max_length: int) -> Law:
    def limited(prefix: tuple[int, ...]) -> Sequence[float]:
        assert len(prefix) < max_length, f"the target was asked about position {len(prefix)} of {max_length}"
        return law(prefix)

    return limited


@cache
def tiny_model(name: str, positions: int = 256) -> Any:
    """A random transformers model by name (`MODELS`) in float64, the same in every process.

    Weights are wide enough for greedy text to wander. `positions` is the longest sequence it attends to.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()) + SALT)
        model = _BUILDERS[name](positions).double().eval()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(0, 0.3)
    return model.requires_grad_(False)


def tiny_target(
    name: str,
    *,
    backend: str = "transformers",
    positions: int = 256,
    eos_ids: Iterable[int] = (),
    taps: tuple[Tap, ...] = (),
    **options: Any,
) -> Target:
    """A fresh bound backend (`BACKENDS`) over `tiny_model`, on which every pass costs a second, as on a scripted one.

    `options` are the backend's; its self-check is off.
    """
    from draftmux.backends.static.backend import StaticBackend
    from draftmux.backends.transformers.backend import TransformersBackend
    from draftmux.costs import CostCurve

    model = tiny_model(name, positions)
    if taps or backend == "static" or options.get("attention", "sdpa") != "sdpa":
        model = copy.deepcopy(model)  # hooks and the attention implementation stay with the model
    kind: Any = {"transformers": TransformersBackend, "static": StaticBackend}[backend]
    target: Target = kind(**{"self_check": False, **options}).over(model, frozenset(eos_ids), taps=taps)
    target._curve = CostCurve((1,), (1.0,))  # measured, open budgets would have another size in every run
    return target


def model_law(name: str, positions: int = 256) -> Law:
    """The law of `tiny_model` by the book: one forward over the whole prefix, transformers' own mask, no cache."""
    model = tiny_model(name, positions)

    @lru_cache(maxsize=4096)
    def law(prefix: tuple[int, ...]) -> Sequence[float]:
        import torch

        with torch.inference_mode():
            return model(input_ids=torch.tensor([prefix]), use_cache=False).logits[0, -1].tolist()  # type: ignore[no-any-return]

    return law


def _sizes(positions: int, layers: int = 2) -> dict[str, Any]:
    return {
        "vocab_size": MODEL_VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": positions,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,  # tied, a wide random model mostly repeats its last token
    }


def _llama(positions: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_sizes(positions)))


def _qwen3(positions: int) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**_sizes(positions), head_dim=8))


def _gemma3(positions: int) -> Any:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    own = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": WINDOW, "layer_types": kinds}
    return Gemma3ForCausalLM(Gemma3TextConfig(**_sizes(positions, len(kinds)), **own))


def _mistral(positions: int) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**_sizes(positions), sliding_window=WINDOW))


def _gpt2(positions: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    own = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": positions}
    return GPT2LMHeadModel(GPT2Config(**{**_sizes(positions), **own}))


_BUILDERS: dict[str, Callable[[int], Any]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "mistral": _mistral,
    "gpt2": _gpt2,
}
