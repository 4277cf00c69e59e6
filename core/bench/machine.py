"""What a figure was measured on: without it an absolute number means nothing."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

from draftmux.machine import cpu_model

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe(backend: Any, dtype: str) -> dict[str, Any]:
    """The machine and the software, as plain data; `line` says it in one line."""
    cuda = str(backend.device).startswith("cuda")
    attention = getattr(getattr(getattr(backend, "model", None), "config", None), "_attn_implementation", None)
    facts = {
        "cpu": cpu_model(),
        "gpu": torch.cuda.get_device_name(backend.device) if cuda else None,
        "threads": torch.get_num_threads(),
        "dtype": dtype,
        "attention": attention,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "draftmux": version("draftmux"),
        "peak_memory_bytes": _peak_memory(),
        "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated(backend.device) if cuda else None,
    }
    return {"line": _line(facts), **facts}


def _line(facts: Mapping[str, Any]) -> str:
    hardware = [facts["gpu"], facts["cpu"], f"{facts['threads']} threads"]
    numerics = [facts["dtype"], facts["attention"] and f"{facts['attention']} attention"]
    software = [f"{name} {facts[name]}" for name in ("torch", "transformers", "draftmux")]
    return " · ".join(part for part in [*hardware, *numerics, *software] if part)


def _peak_memory() -> int | None:
    """Largest resident memory of this process so far, in bytes; None on systems that do not count it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts in bytes, others in KiB
