"""Every checkpoint layout: what the head hands on and its logits, at every node, against the plain equations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from draftmux.drafters.eagle3.bound import BoundEagle3
from draftmux.drafters.eagle3.format import IDS

CHAIN = {"depth": 3, "top_k": 1, "backend": "transformers"}
TREE = {"depth": 3, "top_k": 3, "max_nodes": 8, "backend": "static"}
EMBEDDING, OUTPUT = {"embed_tokens.weight": (40, 32)}, "lm_head.weight"
TAP_NORMS = {f"fc_norm.{at}.weight": (32,) for at in range(3)}
BIASES = {f"layers.0.self_attn.{part}_proj.bias": (size,) for part, size in (("q", 32), ("k", 16), ("v", 16))}
QK_NORMS = {f"layers.0.self_attn.{part}_norm.weight": (16,) for part in "qk"}
SGLANG = {f"fc_norm.{at}.": f"aux_norm_{name}." for at, name in enumerate(("low", "mid", "high"))}


@frozen
class Layout:
    """How a head is made, and how it is written: keys of its config, renamed tensors. `sizes`: where sizes stand."""

    name: str
    config: Mapping[str, Any]
    how: Mapping[str, Any] = field(factory=dict)
    renamed: Mapping[str, str] = field(factory=dict)
    sizes: str | None = None
    pickled: bool = False

    def write(self, folder: Path, plain: Any, write: Callable[..., str]) -> str:
        config = dict(plain.config) if self.sizes is None else {self.sizes: {**plain.config, **self.config[self.sizes]}}
        if len(plain.tensors.get("d2t", ())):
            config["draft_vocab_size"] = len(plain.tensors["d2t"])
        tensors = {}
        for name, tensor in plain.tensors.items():
            for old, new in self.renamed.items():
                name = new + name.removeprefix(old) if name.startswith(old) else name  # noqa: PLW2901
            tensors[name] = tensor
        return write(folder, {**self.config, **config}, tensors, self.pickled)


MID = {"layers.0.": "midlayer."}
LLAMA, SPECFORGE = ["LlamaForCausalLM"], ["LlamaForCausalLMEagle3"]
DEEP = {"num_hidden_layers": 40}  # as a public head says, of one layer


def speculators(name: str, config: Mapping[str, Any], inner: Mapping[str, Any] | None = None, **how: Any) -> Layout:
    """Sizes are in a table of their own; hidden states are outputs after so many layers."""
    table = "transformer_layer_config"
    kind = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", IDS: [1, 3, 6]}
    made = {"reads": (1, 3, 6), **how}
    return Layout(
        f"speculators {name}", {**kind, **config, table: {"model_type": "llama", **(inner or {})}}, made, {}, table
    )


LAYOUTS = (
    Layout("SafeAILab", {"architectures": LLAMA, **DEEP}, {}, MID),
    Layout("SafeAILab pickled", {"architectures": LLAMA, **DEEP}, {"more": EMBEDDING}, MID, pickled=True),
    Layout("SafeAILab whole vocabulary", {"architectures": LLAMA}, {"vocabulary": 40}, MID),
    Layout("SafeAILab shared", {"architectures": LLAMA}, {"vocabulary": 40, "out": [OUTPUT]}, MID),
    Layout("SafeAILab theta", {"architectures": LLAMA, "rope_theta": 300.0}, {"theta": 300.0}, MID),
    Layout(
        "SafeAILab narrower",
        {"architectures": LLAMA, "target_hidden_size": 32},
        {"size": 24, "more": {"embed_tokens.weight": (40, 24)}},
        MID,
    ),
    Layout("SafeAILab biases", {"architectures": LLAMA, "attention_bias": True}, {"more": BIASES}, MID),
    Layout("SafeAILab deeper", {"architectures": LLAMA}, {"layers": 3}, MID),
    speculators("after", {"norm_before_residual": False}, {"rope_theta": 500.0}, theta=500.0, eps=1e-3),
    speculators("before", {"norm_before_residual": True}, {"head_dim": 8}, norm_before_residual=True),
    speculators(
        "rope_parameters", {}, {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}}, theta=700.0, layers=2
    ),
    speculators("input_norm", {"norm_before_fc": True}, more={"input_norm.weight": (96,)}),
    speculators("fc_norm", {"fc_norm": True, "architectures": ["Eagle3DraftModel"]}, more=TAP_NORMS),
    speculators("norm_output", {"norm_output": True}, norm_output=True),
    speculators("two states", {IDS: [2, 7], "num_aux_hidden_states": 2}, reads=(2, 7)),
    Layout(
        "SpecForge",
        {
            "architectures": SPECFORGE,
            "eagle_config": {IDS: [0, 3, 5], "use_aux_hidden_state": True},
            "norm_output": True,
        },
        {"reads": (1, 4, 6)},
        MID,
    ),
    Layout("SpecForge default", {"architectures": SPECFORGE, "eagle_config": {IDS: [1, 3, 4]}}, {}, MID),
    Layout(
        "SpecForge norm_before_fc in eagle_config",
        {"architectures": SPECFORGE, "eagle_config": {"norm_before_fc": True}},
        {"more": {"input_norm.weight": (96,)}},
        MID,
    ),
    Layout(
        "AngelSlim",
        {"architectures": ["Eagle3LlamaForCausalLM"], "target_model_type": "qwen3"},
        {"head_dim": 16},
        MID,
    ),
    Layout("AngelSlim Qwen3", {"architectures": ["Eagle3Qwen3ForCausalLM"]}, {"head_dim": 16, "more": QK_NORMS}, MID),
    Layout(
        "ModelOpt",
        {"architectures": LLAMA, "eagle_config": {IDS: [1, 2, 6]}},
        {"reads": (2, 3, 7)},
        {"": "eagle_module."},
    ),
    Layout(
        "ModelOpt without ids",
        {"architectures": SPECFORGE, "eagle_config": {"use_aux_hidden_state": True}},
        {},
        {"": "model.", "model.d2t": "d2t", "model.t2d": "t2d"},
    ),
    Layout("SGLang norms", {"architectures": SPECFORGE, "use_aux_norm": True}, {"more": TAP_NORMS}, {**MID, **SGLANG}),
    Layout(
        "SGLang norms and output",
        {"architectures": SPECFORGE, "fc_norm": True, "norm_output": True},
        {"more": TAP_NORMS, "norm_output": True},
        {**MID, **SGLANG},
    ),
    Layout("target_layer_ids", {"architectures": LLAMA, "target_layer_ids": [1, 2, 6]}, {"reads": (2, 3, 7)}, MID),
)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_layout(layout: Layout, random_plain: Any, write: Any, agree: Any, tmp_path: Path) -> None:
    plain = random_plain(**layout.how)
    head = layout.write(tmp_path, plain, write)
    for options in (CHAIN, TREE):
        seen = agree(head, plain, **options)
        deepest = {one.tokens for one in seen if len(one.path) == 2}
        assert len(deepest) > 8, "hardly anything was drafted"
        assert all(len(one.children) == options["top_k"] for one in seen)


@pytest.mark.parametrize("options", [{**CHAIN, "backend": "static"}, {**TREE, "backend": "transformers"}], ids=str)
def test_the_other_backend(options: Any, random_plain: Any, write: Any, agree: Any, tmp_path: Path) -> None:
    plain = random_plain()
    agree(LAYOUTS[0].write(tmp_path, plain, write), plain, **options)


def test_asked_again_before_the_next_step(
    random_plain: Any, write: Any, agree: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a merge of drafters may do: the same draft, and the pairs stay in order."""
    once = BoundEagle3.propose

    def twice(self: BoundEagle3, requests: Any) -> Any:
        first, second = once(self, requests), once(self, requests[::-1])[::-1]
        assert [draft.tokens.tolist() for draft in first] == [draft.tokens.tolist() for draft in second]
        return first

    monkeypatch.setattr(BoundEagle3, "propose", twice)
    plain = random_plain(layers=2)
    agree(LAYOUTS[0].write(tmp_path, plain, write), plain, **TREE)


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
BLEND = (128 / (2 * math.pi * 10) - 1) / 3  # of the second wave, whose length lies between 128 / 4 and 128


@pytest.mark.parametrize(
    ("scaling", "factors"),
    [
        (None, (1, 1, 1, 1)),
        ({"rope_type": "linear", "factor": 4.0}, (0.25, 0.25, 0.25, 0.25)),
        ({"type": "linear", "factor": 4.0}, (0.25, 0.25, 0.25, 0.25)),
        ({"rope_type": "llama3", "factor": 8.0, **LLAMA3}, (1, (1 - BLEND) / 8 + BLEND, 1 / 8, 1 / 8)),
    ],
)
def test_scaled_rotations(scaling: Any, factors: Any, random_plain: Any, write: Any, bind: Any, tmp_path: Path) -> None:
    plain = random_plain()
    config = {"architectures": LLAMA, **plain.config, "rope_theta": 10000.0, "rope_scaling": scaling}
    _, bound = bind(write(tmp_path, config, plain.tensors))
    expected = [factor * 10.0**-at for at, factor in enumerate(factors)]
    assert bound.reader.target.model.frequencies.tolist() == pytest.approx(expected, rel=1e-6)
