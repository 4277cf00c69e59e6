"""A head to train, as near to its target as it can begin: a good part of the way is then behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import LlamaConfig

from draftmux.backends.taps import decoder_layers
from draftmux.drafters.eagle3.model import Eagle3Head, HeadShape
from draftmux.training.teacher import last_norm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from draftmux.drafters.eagle3.recipe import HeadRecipe

STD = 0.02  # of random weights, as Llama's are
FUSED_STD = 0.005  # of those that read thousands of inputs: little beside the last tap itself
READERS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")  # of embedding and feature, side by side
LINEAR = (*READERS, "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = {"hidden_norm": "input_layernorm", "post_attention_layernorm": "post_attention_layernorm"}
OTHER_LAYOUT = "pre_feedforward_layernorm"  # the sign of layers whose post_attention_layernorm is another thing


def new_head(model: Any, ids: Tensor, taps: int, recipe: HeadRecipe) -> Eagle3Head:
    """A head for `model` with draft vocabulary `ids`: its embedding (frozen), its last norm, its output rows of `ids`,
    its last layer over the last tap; what is left is random."""
    text = model.config.get_text_config(decoder=True)
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "max_position_embeddings")
    own = {name: getattr(text, name) for name in names if getattr(text, name, None) is not None}
    config = LlamaConfig(
        **own,
        vocab_size=text.vocab_size,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        intermediate_size=recipe.intermediate or text.intermediate_size,
        num_hidden_layers=1,
        rope_parameters=dict(text.rope_parameters),
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        head = Eagle3Head(config, HeadShape(text.hidden_size, len(ids), taps=taps))
        for name, parameter in head.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=FUSED_STD if name == "fc.weight" else STD)
    with torch.no_grad():
        head.embed_tokens.weight.copy_(model.get_input_embeddings().weight)
        head.lm_head.weight.copy_(model.get_output_embeddings().weight[ids])
        head.norm.weight.copy_(_gain(last_norm(model), text.hidden_size))
        head.fc.weight[:, -text.hidden_size :] += torch.eye(text.hidden_size)
        _begin_with(dict(head.layers[0].named_modules()), decoder_layers(model)[-1], text.hidden_size)
    head.embed_tokens.requires_grad_(False)
    return head


def _begin_with(own: Mapping[str, Any], given: nn.Module, width: int) -> None:
    """Copy the target's last layer as far as it is of the head's kind: plain products, norms in the same places."""
    there: dict[str, Any] = dict(given.named_modules())
    for name in LINEAR:
        weight: Any = own[name].weight
        source: Any = getattr(there.get(name), "weight", None)
        if type(there.get(name)) is not nn.Linear or not source.dtype.is_floating_point or source.dtype.itemsize < 2:
            continue
        if source.shape == weight.shape:
            weight.copy_(source)
        elif name in READERS and (source.shape[0], 2 * source.shape[1]) == weight.shape:
            weight[:, width:].copy_(source)
    if OTHER_LAYOUT not in there:
        for name, source in NORMS.items():
            if source in there:
                own[name].weight.copy_(_gain(there[source], width))


def _gain(norm: Any, width: int) -> Tensor:
    """What a norm multiplies by, `(width,)`, however it keeps it (Gemma keeps it less one)."""
    signs = torch.ones(width)  # their mean is 0, for norms that take it off
    signs[::2] = -1
    weight = next(norm.parameters())
    large = 1024 * signs.to(weight.device, weight.dtype)  # beside which the epsilon is nothing
    gain: Tensor = norm(large).cpu().float() * signs
    return gain
