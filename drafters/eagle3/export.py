"""Writes a trained head in the layout of speculators, with a model card."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from draftmux.drafters.eagle3.format import CONFIG, IDS
from draftmux.training.card import write_card

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from draftmux.drafters.eagle3.model import Eagle3Head
    from draftmux.training.card import Origin
    from draftmux.types import Tap

CARD = """# EAGLE-3 head for {target}

A draft head (EAGLE-3, arXiv 2503.01840) in the layout of `speculators`, trained by draftmux. It guesses; the target
decides. Its embedding is the target's and not in here.

```yaml
drafters:
  eagle: {{use: eagle3, head: {folder}}}
```
"""


def export(folder: Path, head: Eagle3Head, ids: Tensor, taps: Sequence[Tap], origin: Origin) -> None:
    """`config.json`, `model.safetensors` in bfloat16 and `README.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    size = head.config.vocab_size
    mask = torch.zeros(size, dtype=torch.bool)
    mask[ids] = True
    state = {name: tensor for name, tensor in head.state_dict().items() if name != "embed_tokens.weight"}
    tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in state.items()}
    save_file({**tensors, "d2t": ids - torch.arange(len(ids)), "t2d": mask}, folder / "model.safetensors")
    layers = origin.model.config.get_text_config(decoder=True).num_hidden_layers
    passed = [tap.index(layers) + 1 for tap in taps]
    config = _config(head, passed, origin)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    facts = (
        f"hidden states: outputs after layers {', '.join(map(str, passed))}",
        f"draft vocabulary: {len(ids)} tokens",
    )
    write_card(folder, CARD.format(target=origin.target, folder=folder.name), origin, facts)


def _config(head: Eagle3Head, passed: list[int], origin: Origin) -> dict[str, Any]:
    config, shape = head.config, head.shape
    names = (
        *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("num_hidden_layers", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters"),
    )
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": shape.draft_vocab_size,
        "target_hidden_size": shape.target_hidden_size,
        "norm_before_residual": shape.norm_before_residual,
        IDS: passed,
        "transformer_layer_config": {
            "model_type": "llama",
            "attention_bias": False,
            "hidden_act": "silu",
            **{name: getattr(config, name) for name in names},
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"name_or_path": origin.target, "architectures": [type(origin.model).__name__]},
        },
        "draftmux": origin.kept,
    }
