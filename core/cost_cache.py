"""Keeps cost curves on disk from run to run, so that budgets that follow them, and bfloat16 texts, stay the same.

A kept curve is foreign data: what is not exactly a curve for the setting in question is measured again. Knows nothing
of how curves are measured.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import attrs

from draftmux.costs import ROWS, CostCurve
from draftmux.machine import cpu_model
from draftmux.models.fetch import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from draftmux.models.source import ModelSpec

SWITCH = "DRAFTMUX_COST_CACHE"
OFF = {"off", "0", "false", "no"}
FORMAT = 1  # another way to measure gives other figures
BYTES = 1 << 16
LONGEST = 3600.0  # seconds; no pass that was measured took longer


def setting(model: Any, spec: ModelSpec, backend: str, options: Any) -> dict[str, Any]:
    """All that the cost of a loaded transformers model depends on. `options`: the backend's attrs class.

    Of the weights that is their shapes and format, which the configuration and the dtype say, not their values.
    """
    import torch

    cuda = model.device.type == "cuda"
    config: str = model.config.to_json_string(use_diff=False)
    return {
        "format": FORMAT,
        "model": attrs.asdict(spec),
        "revision": getattr(model.config, "_commit_hash", None),
        "architecture": type(model).__name__,
        "config": hashlib.sha256(config.encode()).hexdigest(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(model.dtype),
        "backend": backend,
        "options": attrs.asdict(options),
        "device": torch.cuda.get_device_name(model.device) if cuda else cpu_model(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "draftmux": version("draftmux"),
    }


def remembered(key: Mapping[str, Any] | None, measure: Callable[[], CostCurve]) -> CostCurve:
    """The curve that is kept for `key`; if there is none, the one that `measure` gives, kept from now on.

    Without a key, and with `DRAFTMUX_COST_CACHE=off`, nothing is read or kept.
    """
    curve = recall(key)
    if curve is None:
        curve = measure()
        keep(key, curve)
    return curve


def recall(key: Mapping[str, Any] | None) -> CostCurve | None:
    """The curve that is kept for `key`, if there is a sound one."""
    if (path := _path(key)) is None:
        return None
    with suppress(OSError, ValueError, RecursionError):
        found = _read(path)
        rows, seconds = found["rows"], found["seconds"]
        sound = _numbers(rows, int) and _numbers(seconds, float) and set(rows) <= set(ROWS) and max(seconds) < LONGEST
        if sound and rows[:1] == [1] and found["key"] == _plain(key):
            return CostCurve(rows, seconds)
    return None


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():  # reading a pipe would wait for ever
        raise ValueError("there is no such file")
    with path.open("rb") as file:
        data = file.read(BYTES + 1)
    found = json.loads(data) if len(data) <= BYTES else None
    if not (isinstance(found, dict) and found.keys() == {"key", "rows", "seconds"}):
        raise ValueError("this is no cost curve")
    return found


def _numbers(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def keep(key: Mapping[str, Any] | None, curve: CostCurve) -> None:
    """Keep the curve for `key`. Where nothing can be written, the next run measures again; nobody needs to know."""
    if (path := _path(key)) is None:
        return
    data = json.dumps({"key": _plain(key), "rows": curve.rows, "seconds": curve.seconds}, indent=1)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix="partial-", delete=False) as file:
            part = Path(file.name)
        try:
            part.write_text(data, "utf-8")
            part.replace(path)  # a reader sees the old file or the new one, never half of one
        finally:
            part.unlink(missing_ok=True)


def _path(key: Mapping[str, Any] | None) -> Path | None:
    if key is None or os.environ.get(SWITCH, "").strip().lower() in OFF:
        return None
    name = hashlib.sha256(json.dumps(_plain(key), sort_keys=True).encode()).hexdigest()
    with suppress(RuntimeError):  # there is no home folder
        return cache_folder() / "costs" / f"{name[:32]}.json"
    return None


def _plain(key: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(key, sort_keys=True, default=str))
