"""What trained parts know their target by: a hash of some of its weights, in whatever format it is loaded.

It tells models apart that differ in the embedding or the last norm. A fine-tune that left both alone passes; what such
a part is worth there, the drafters' test at load says.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from draftmux.errors import ModelError

ROWS = 1024  # of the embedding, evenly spread: enough to tell any two models apart, and fast


def fingerprint(model: Any) -> str:
    """Of a transformers model, as a hexadecimal number. bfloat16, float32 and packed weights give the same one.

    float16 may not: its smallest numbers have fewer bits.
    """
    weight = model.get_input_embeddings().weight.detach()
    chosen = torch.linspace(0, len(weight) - 1, min(ROWS, len(weight)), dtype=torch.float64).long()
    rows = weight[chosen.to(weight.device)].to(torch.bfloat16).cpu().contiguous()
    norm = getattr(getattr(model, str(model.base_model_prefix), None), "norm", None)
    if norm is not None:
        rows = torch.cat((rows.flatten(), norm.weight.detach().to(torch.bfloat16).cpu().flatten()))
    shape = f"{type(model).__name__} {tuple(weight.shape)}".encode()
    return hashlib.sha256(shape + rows.view(torch.uint8).numpy().tobytes()).hexdigest()


def refuse_other(what: str, kept: Any, model: Any) -> None:
    """ModelError when a part was trained for other weights than `model` has. `kept` is what it holds of its origin."""
    named = kept if isinstance(kept, dict) else {}
    asked = named.get("target_fingerprint")
    if asked is not None and model.dtype != torch.float16 and str(asked) != fingerprint(model):
        raise ModelError(
            f"{what} was trained for {named.get('target', 'another target')}, whose weights are others "
            f"than those of the target that is loaded (fingerprint {str(asked)[:12]}, not {fingerprint(model)[:12]}); "
            f"take a part that was trained for this target"
        )
