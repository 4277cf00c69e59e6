"""Whether a model can be split over several processes, from its configuration alone. How it is split is transformers'.

Knows nothing of processes: only into how many shards the weights go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from transformers import DistributedConfig

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from draftmux.models.source import ModelSpec

_HEADS = re.compile(r"(\w+_)?num(_\w+)?_(attention|key_value)_heads(_per_layer)?")


def shards(config: Any, name: str, count: int) -> DistributedConfig:
    """What `from_pretrained` needs to load this process's shard of `count`; ModelError when the model has no such."""
    text = config.get_text_config(decoder=True)
    plan: dict[str, str] = getattr(text, "base_model_tp_plan", None) or {}
    if not plan:
        raise ModelError(
            f"{name}: transformers has no tensor parallel plan for the architecture '{text.model_type}', so {count} "
            f"processes cannot share it; start a single one"
        )
    for key, size in _divided(text, plan).items():
        if size % count:
            raise ModelError(
                f"{name} has {key} {size}, which {count} processes cannot share evenly; start torchrun with a number "
                f"of processes that divides it"
            )
    return DistributedConfig(tp_size=count)


def refuse_device(spec: ModelSpec, kind: str) -> None:
    """ModelError for a device that the user chose: each process has its own, of the one kind that there is."""
    if spec.device not in ("auto", kind):
        raise ModelError(
            f"model '{spec.source}': device is '{spec.device}', but each of several processes runs on its own {kind} "
            f"device; leave `device` out (CUDA_VISIBLE_DEVICES chooses among GPUs, and empty it means the CPU)"
        )


def _divided(text: Any, plan: dict[str, str]) -> dict[str, int]:
    """Sizes that the plan splits and that must come out even: other layers' last shard may be smaller."""
    found: dict[str, Any] = {}
    if any(style == "colwise" and ("attn" in rule or "attention" in rule) for rule, style in plan.items()):
        found |= {key: value for key, value in text.to_dict().items() if _HEADS.fullmatch(key)}
    if any(style.startswith("packed") for style in plan.values()):
        key = "moe_intermediate_size" if hasattr(text, "moe_intermediate_size") else "intermediate_size"
        found[key] = getattr(text, key, None)
    lists = {key: value if isinstance(value, list | tuple) else [value] for key, value in found.items()}
    return {key: size for key, sizes in lists.items() for size in sizes if size is not None}
