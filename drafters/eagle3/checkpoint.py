"""Loads EAGLE-3 checkpoints: names made alike, sizes taken from tensors, nothing left over and nothing missing.

A head that is loaded wrongly drafts badly and raises no error, so whatever is not understood is refused by name.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen
from transformers import LlamaConfig

from draftmux.drafters.eagle3.format import CONFIG, Format, read_format
from draftmux.drafters.eagle3.model import Eagle3Head, HeadShape, rotary
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.neural.reader import host_of
from draftmux.errors import ModelError
from draftmux.models.fingerprint import fingerprint
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
    _refuse_other_target(options, target.model)
    taps = tuple(options.taps) or form.taps
    head, ids = build(options.head, form, tensors, Fit.of(target.model, len(taps)))
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
    for name, tensor in _weights(source, revision).items():
        for pattern, replacement in RENAMED:
            name = re.sub(pattern, replacement, name)  # noqa: PLW2901
        if name in tensors:
            raise ModelError(f"head '{source}' holds tensor {name} twice, under different prefixes")
        tensors[name] = tensor
    return read_format(config), tensors


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


@frozen(eq=False)
class Fit:
    """What of the target a head must fit, and may share."""

    hidden_size: int
    vocab_size: int
    positions: int  # that the target was built for
    taps: int
    embedding: Any
    output: Any

    @classmethod
    def of(cls, model: Any, taps: int) -> Fit:
        """Of a loaded target."""
        config = model.config.get_text_config(decoder=True)
        own = (model.get_input_embeddings(), model.get_output_embeddings())
        positions = getattr(config, "max_position_embeddings", None) or 0
        return cls(config.hidden_size, config.vocab_size, positions, taps, *own)


def build(source: str, form: Format, tensors: Mapping[str, Tensor], fit: Fit) -> tuple[Eagle3Head, Tensor | None]:
    """A head with all its weights, and the target's ids of its logits; ModelError naming what does not fit."""
    weights = dict(tensors)
    config, shape = _sizes(source, form, weights, fit)
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


def _sizes(source: str, form: Format, weights: Mapping[str, Tensor], fit: Fit) -> tuple[LlamaConfig, HeadShape]:
    """A config of the head's layers, by its tensors where they say it."""

    def shape(name: str) -> tuple[int, ...]:
        if name not in weights:
            raise ModelError(f"head '{source}' ({form.layout} layout): missing tensor {name}")
        if weights[name].ndim != 2:
            raise ModelError(f"head '{source}': {name} is {tuple(weights[name].shape)}, it must be a matrix")
        return tuple(weights[name].shape)

    size, fused = shape("fc.weight")
    width = form.target_hidden_size or fit.hidden_size
    if width != fit.hidden_size or fused != fit.taps * width:
        raise ModelError(
            f"head '{source}' fuses {fused} numbers a position; {fit.taps} hidden states of this target are "
            f"{fit.taps * fit.hidden_size}. It was trained for another target, or reads another number of states"
        )
    queries, inputs = shape("layers.0.self_attn.q_proj.weight")
    if inputs != 2 * size:
        raise ModelError(
            f"head '{source}': its first q_proj reads {inputs} numbers; embedding and feature are {2 * size}"
        )
    heads = form.sizes.get("num_attention_heads")
    if not isinstance(heads, int) or heads < 1 or queries % heads:
        raise ModelError(f"head '{source}': num_attention_heads is {heads}, which does not divide {queries} queries")
    head_dim = queries // heads
    keys = shape("layers.0.self_attn.k_proj.weight")[0]
    if keys < head_dim or keys % head_dim or queries % keys:
        raise ModelError(f"head '{source}': its k_proj gives {keys} numbers, for {heads} query heads of {head_dim}")
    if form.draft_vocab_size not in (None, len(weights.get("lm_head.weight", range(fit.vocab_size)))):
        raise ModelError(
            f"head '{source}': draft_vocab_size is {form.draft_vocab_size}, and lm_head is of another size"
        )
    layers = {int(match[1]) for name in weights if (match := re.match(r"layers\.(\d+)\.", name))}
    vocabulary = shape("lm_head.weight")[0] if "lm_head.weight" in weights else fit.vocab_size
    own = {
        "hidden_size": size,
        "head_dim": head_dim,
        "num_hidden_layers": len(layers),
        "num_key_value_heads": keys // head_dim,
        "intermediate_size": shape("layers.0.mlp.gate_proj.weight")[0],
        "vocab_size": shape("embed_tokens.weight")[0] if "embed_tokens.weight" in weights else fit.vocab_size,
        "attention_bias": "layers.0.self_attn.q_proj.bias" in weights,
        "tie_word_embeddings": False,
        # Heads are trained on short texts and used on long ones: rotary positions go on.
        "max_position_embeddings": max(fit.positions, form.sizes.get("max_position_embeddings") or 0) or 2048,
    }
    flags = {name: form.flags[name] for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")}
    qk_norm = "layers.0.self_attn.q_norm.weight" in weights
    shaped = HeadShape(width, vocabulary, taps=fit.taps, qk_norm=qk_norm, **flags)
    return _config(source, {**form.sizes, **own}), shaped


def _config(source: str, sizes: dict[str, Any]) -> LlamaConfig:
    try:
        config = LlamaConfig(**sizes)
        rotary(config)
    except Exception as error:  # transformers' own checks
        raise ModelError(f"head '{source}': its config is not possible: {error}") from error
    if config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"head '{source}': partial_rotary_factor is set; only full rotation is supported")
    return config


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


def _refuse_other_target(options: Eagle3, model: Any) -> None:
    """ModelError when the head's config holds the fingerprint of another target; only heads of ours hold one."""
    config = part_file(options.head, CONFIG, options.revision)
    named = json.loads(config.read_text("utf-8")).get("draftmux") if config is not None else None
    named = named if isinstance(named, dict) else {}
    asked = named.get("target_fingerprint")
    if asked is not None and str(asked) != fingerprint(model):
        raise ModelError(
            f"head '{options.head}' was trained for {named.get('target', 'another target')}, whose weights are others "
            f"than those of the target that is loaded (fingerprint {str(asked)[:12]}, not {fingerprint(model)[:12]})"
        )
