"""Loads EAGLE-3 checkpoints: names made alike, sizes taken from tensors, nothing left over and nothing missing.

A head that is loaded wrongly drafts badly and raises no error, so whatever is not understood is refused by name.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import torch

from draftmux.backends.beside import host_of
from draftmux.drafters.eagle3.format import CONFIG, Format, read_format
from draftmux.drafters.eagle3.model import Eagle3Head, HeadShape, rotary
from draftmux.drafters.eagle3.sizes import Fit, sizes
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.errors import ModelError
from draftmux.models.fingerprint import refuse_other
from draftmux.models.parts import part_file
from draftmux.types import Tap

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from draftmux.backends.target import Target
    from draftmux.drafters.eagle3.drafter import Eagle3
    from draftmux.protocols import BoundBackend

OUTPUT = Tap(-1, "resid_post")  # of the head's last layer
log = logging.getLogger(__name__)
SAFE, SHARDS, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
RENAMED = (
    (r"^(model|eagle_module|draft_model)\.", ""),
    (r"^midlayer\.", "layers.0."),
    (r"^aux_norm_low\.", "fc_norm.0."),
    (r"^aux_norm_mid\.", "fc_norm.1."),
    (r"^aux_norm_high\.", "fc_norm.2."),
)
MAPS = {"d2t", "t2d"}
SHARED = {"embed_tokens.weight", "lm_head.weight"}  # what a head may take from the target


def load(options: Eagle3, backend: BoundBackend) -> tuple[Target, Vocabulary, tuple[Tap, ...]]:
    """The head on the target's backend, what its logits stand for, and the hidden states it reads."""
    beside = host_of(backend, "eagle3")
    target: Any = backend
    form, tensors = read(options.head, options.revision)
    refuse_other_target(options.head, options.revision, target.model)
    taps = tuple(options.taps) or form.taps
    head, ids = build(options.head, form, tensors, Fit.of(target.model, len(taps)))
    unread = [tap for tap in taps if tap not in target.recorder.taps]
    if unread or len(set(taps)) < len(taps):
        raise ModelError(
            f"head '{options.head}' reads {', '.join(map(str, taps))}; the target was loaded without "
            f"{', '.join(map(str, unread)) or 'them, each once'}: load the pipeline on a target of its own"
        )
    ids = None if ids is None else ids.to(target.device)
    log.info("%s: %s; %s", options.head, form, "; ".join(form.assumed) or "nothing assumed")
    head.place(target.device, target.model.dtype)
    loaded = beside(head, taps=(OUTPUT,), self_check=False)
    return loaded, Vocabulary(target.vocab_size, ids), taps


def read(source: str, revision: str | None = None) -> tuple[Format, dict[str, Tensor]]:
    """A head's config and tensors, under names of ours; ModelError when a file is missing."""
    config = part_file(source, CONFIG, revision)
    if config is None:
        raise ModelError(f"head '{source}' has no {CONFIG}; a head is a folder with {CONFIG} and {SAFE}")
    tensors: dict[str, Tensor] = {}
    for given, tensor in _weights(source, revision).items():
        name = _renamed(given)
        if name in tensors:
            raise ModelError(f"head '{source}' holds tensor {name} twice, under different prefixes")
        tensors[name] = tensor
    return read_format(config), tensors


def _renamed(name: str) -> str:
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def _weights(source: str, revision: str | None) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    if (path := part_file(source, SAFE, revision)) is not None:
        return _loaded(path, load_file)
    if (index := part_file(source, SHARDS, revision)) is not None:
        names = _shard_names(index)
        paths = [part_file(source, name, revision) for name in names]
        if None in paths:
            raise ModelError(f"head '{source}' lacks {names[paths.index(None)]}, which its {SHARDS} names")
        return {name: tensor for path in paths if path for name, tensor in _loaded(path, load_file).items()}
    if (path := part_file(source, PICKLED, revision)) is not None:
        return _loaded(path, lambda path: torch.load(path, map_location="cpu", weights_only=True))
    raise ModelError(f"head '{source}' has neither {SAFE} nor {PICKLED}")


def _shard_names(index: Path) -> list[str]:
    try:
        return sorted({str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} is no index of weights: {error!r}") from error


def _loaded(path: Path, load: Any) -> dict[str, Tensor]:
    try:
        found = load(path)
    except Exception as error:  # foreign data; weights_only refuses everything but tensors
        raise ModelError(f"{path} cannot be read as weights: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise ModelError(f"{path} holds something else than named tensors")
    return found


def build(source: str, form: Format, tensors: Mapping[str, Tensor], fit: Fit) -> tuple[Eagle3Head, Tensor | None]:
    """A head with all its weights, and the target's ids of its logits; ModelError naming what does not fit."""
    weights = dict(tensors)
    config, shape = sizes(source, form, weights, fit)
    ids = _ids(source, weights, fit.vocab_size)
    with torch.device("meta"):
        head = Eagle3Head(config, shape)
    head.frequencies, head.amplitude = rotary(config)
    expected = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    lent = SHARED - weights.keys()
    unknown = sorted(weights.keys() - expected.keys())
    missing = sorted(expected.keys() - weights.keys() - lent)
    if unknown or missing:
        what = f"{'unknown' if unknown else 'missing'} tensor {(unknown or missing)[0]}"
        raise ModelError(f"head '{source}' ({form.layout} layout): {what}; it is no head of a kind that is understood")
    wrong = [name for name in sorted(weights) if tuple(weights[name].shape) != expected[name]]
    if wrong:
        name = wrong[0]
        raise ModelError(
            f"head '{source}': {name} is {tuple(weights[name].shape)}, config and other tensors say {expected[name]}"
        )
    head.load_state_dict(weights, strict=False, assign=True)  # what was left out is shared with the target
    _share(source, head, lent, fit, shape)
    return head, ids


def _ids(source: str, weights: dict[str, Tensor], size: int) -> Tensor | None:
    """The target's id of every place of the draft vocabulary, `d2t` being offsets; None where they are the same."""
    offsets, mask = (weights.pop(name, None) for name in ("d2t", "t2d"))
    count = len(weights["lm_head.weight"]) if "lm_head.weight" in weights else size
    if offsets is None:
        if count != size:
            raise ModelError(
                f"head '{source}': it has {count} tokens and the target {size}, and no d2t says which; it is incomplete"
            )
        return None
    if offsets.shape != (count,) or offsets.is_floating_point():
        raise ModelError(f"head '{source}': d2t must hold {count} integers, got {tuple(offsets.shape)}")
    ids = torch.arange(count) + offsets.to(torch.int64)
    if not (int(ids.min()) >= 0 and int(ids.max()) < size and len(ids.unique()) == count):
        hint = "they look like ids" if int(offsets.min()) >= 0 and len(offsets.unique()) == count else "they are wrong"
        raise ModelError(
            f"head '{source}': d2t must hold offsets, target id minus place, that give {count} different ids below "
            f"{size}; {hint}"
        )
    if mask is not None and not torch.equal(mask.bool().nonzero().flatten(), ids.sort().values):
        raise ModelError(f"head '{source}': d2t and t2d name different tokens; one of them is wrong")
    return ids


def _share(source: str, head: Eagle3Head, lent: set[str], fit: Fit, shape: HeadShape) -> None:
    """Let the head use the target's embedding and output layer where it has none of its own."""
    width = head.config.hidden_size
    if lent and width != fit.hidden_size:
        raise ModelError(
            f"head '{source}' has no {min(lent)}, and the target's is of width {fit.hidden_size}, not {width}"
        )
    if "embed_tokens.weight" in lent:
        head.embed_tokens = fit.embedding
    elif head.config.vocab_size < fit.vocab_size:
        raise ModelError(f"head '{source}' embeds {head.config.vocab_size} tokens, the target has {fit.vocab_size}")
    if "lm_head.weight" in lent:
        if shape.draft_vocab_size != fit.vocab_size:
            raise ModelError(f"head '{source}' has no lm_head.weight of its own, which a smaller vocabulary needs")
        head.lm_head = fit.output


def refuse_other_target(source: str, revision: str | None, model: Any) -> None:
    """ModelError when a head's config holds the fingerprint of another target; only heads of ours hold one."""
    config = part_file(source, CONFIG, revision)
    if config is not None:
        refuse_other(f"head '{source}'", json.loads(config.read_text("utf-8")).get("draftmux"), model)
