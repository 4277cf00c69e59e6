"""The target's own law of the next token, out of its last layer's states: what distilled parts learn.

It is the target's own `forward` with all layers left out, so that whatever a family does to its logits (a bias, a
scale, a cap) is in it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor


class Teacher(nn.Module):
    """Logits of a target in float32, over the tokens `ids (K,)` or all of them. The target is left as it is."""

    def __init__(self, model: Any, ids: Tensor | None = None) -> None:
        super().__init__()
        self.norm = copy.deepcopy(last_norm(model)).float().requires_grad_(False)
        twin = copy.copy(model)
        twin._modules = dict(model._modules)
        twin.set_output_embeddings(_rows(model.get_output_embeddings(), slice(None) if ids is None else ids))
        setattr(twin, model.base_model_prefix, _Nothing())
        self.twin = twin

    def output(self, normed: Tensor) -> Tensor:
        """`(n, d)` states after the last norm to `(n, K)` logits; gradients pass."""
        return self.twin(inputs_embeds=normed[None]).logits[0].float()  # type: ignore[no-any-return]

    @torch.no_grad()
    def forward(self, states: Tensor) -> Tensor:
        """`(n, d)` states after the last layer to `(n, K)` logits, in float32 under autocast too."""
        with torch.autocast(states.device.type, enabled=False):
            return self.output(self.norm(states.float()))


class _Nothing(nn.Module):
    """In the place of embedding, layers and norm."""

    def forward(self, inputs_embeds: Tensor, **others: Any) -> BaseModelOutputWithPast:
        """`(1, n, d)` as it is."""
        return BaseModelOutputWithPast(last_hidden_state=inputs_embeds)


def _rows(output: nn.Linear, ids: Tensor | slice) -> nn.Linear:
    """The rows of some tokens, in float32."""
    weight = output.weight.detach()[ids].float()
    own = nn.Linear(weight.shape[1], weight.shape[0], bias=output.bias is not None, device="meta")
    own.weight = nn.Parameter(weight, requires_grad=False)
    if output.bias is not None:
        own.bias = nn.Parameter(output.bias.detach()[ids].float(), requires_grad=False)
    return own


def last_norm(model: Any) -> Any:
    """The norm before the output layer; ModelError where it has another name."""
    found = getattr(getattr(model, model.base_model_prefix), "norm", None)
    if found is None:
        raise ModelError(
            f"{type(model).__name__} has no last norm under the name 'norm', as Llama-like models have; parts for it "
            f"cannot be trained"
        )
    return found
