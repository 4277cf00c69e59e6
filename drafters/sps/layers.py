"""The target's first layers as a model of its own: the same weights, no copy, and adapters of its own."""

from __future__ import annotations

import copy
import json
from typing import Any

from torch import nn

from draftmux.backends.taps import decoder_layers
from draftmux.errors import ModelError
from draftmux.models.adapters import adapt, own_copy, read_adapter, unhooked
from draftmux.models.fingerprint import refuse_other
from draftmux.models.parts import part_file

ORIGIN = "draftmux.json"  # beside PEFT's two files in adapters of ours: of which target, for how many layers


def first_layers(backend: Any, count: int, adapter: str | None = None) -> Any:
    """A model of the target's first `count` layers, final norm and output layer; ModelError when it has no more."""
    model = backend.model
    total = len(decoder_layers(model))
    if count >= total:
        raise ModelError(f"layers: {count} asks for all of the target's {total} layers or more; give fewer")
    own = own_copy(model)
    base_name = str(model.base_model_prefix)
    base = own_copy(getattr(model, base_name))
    setattr(own, base_name, base)
    config = copy.deepcopy(model.config)
    text = config.get_text_config(decoder=True)
    text.num_hidden_layers = count
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:count]
    own.config, base.config = config, text
    _set_layers(base, nn.ModuleList(unhooked(layer) for layer in list(decoder_layers(model))[:count]))
    if adapter is not None:
        found = read_adapter(adapter)
        _refuse_other_use(adapter, count, model)
        adapt(own, found, f"a model of {count} layers (set `layers` to what it was trained for)")
    return own


def _refuse_other_use(source: str, count: int, model: Any) -> None:
    """ModelError when an adapter of ours was trained for another target, or for another number of its layers."""
    try:
        path = part_file(source, ORIGIN)
    except ModelError:  # a hub that cannot be reached; its two files are in the cache, and of ours there would be three
        path = None
    if path is None:
        return
    try:
        kept = dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"adapter '{source}': {ORIGIN} cannot be read: {error!r}; train it again") from error
    refuse_other(f"adapter '{source}'", kept, model)
    if kept.get("layers", count) != count:
        raise ModelError(
            f"adapter '{source}' was trained for layers: {kept['layers']}, not {count}; set `layers` to that"
        )


def _set_layers(base: Any, layers: nn.ModuleList) -> None:
    name = next(name for name in ("layers", "h", "blocks") if getattr(base, name, None) is not None)
    setattr(base, name, layers)
