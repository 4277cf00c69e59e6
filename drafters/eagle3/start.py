"""A head that goes on from the weights of another: with more answers, other prompts, another draft vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve

from draftmux.drafters.eagle3.checkpoint import build, read
from draftmux.drafters.eagle3.sizes import Fit
from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.drafters.eagle3.model import Eagle3Head
    from draftmux.types import Tap

TARGET = "embed_tokens.weight"  # what stays the target's own
OUTPUT = "lm_head.weight"  # a row a token


@torch.no_grad()
def begin_from(head: Eagle3Head, ids: Tensor, taps: Sequence[Tap], source: str, model: Any) -> None:
    """Give `head`, whose draft vocabulary is `ids (K,)`, the weights of the head at `source`.

    Tokens that only `head` drafts keep their rows. ModelError when `source` cannot be loaded, RequestError when it is
    of another size or reads other hidden states.
    """
    form, tensors = read(source)
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    read_by, wanted = ([tap.index(layers) for tap in each] for each in (form.taps, taps))
    if read_by != wanted:
        raise RequestError(
            f"--start {source} reads the outputs of layers {read_by}, and {wanted} are to be read; give the same --tap"
        )
    given, known = build(source, form, tensors, Fit.of(model, len(taps)))
    own, other = head.state_dict(), given.state_dict()
    odd = [name for name in own.keys() - {OUTPUT} if name not in other or own[name].shape != other[name].shape]
    if odd or evolve(given.shape, draft_vocab_size=len(ids)) != head.shape:
        raise RequestError(
            f"--start {source} is a head of another size or kind than the one to be trained: "
            f"{f'{min(odd)} differs' if odd else f'{given.shape} and {head.shape}'}"
        )
    for name in own.keys() - {TARGET, OUTPUT}:
        own[name].copy_(other[name])
    known = torch.arange(len(other[OUTPUT])) if known is None else known
    places = torch.full((model.config.get_text_config(decoder=True).vocab_size,), -1)
    places[known] = torch.arange(len(known))
    both = places[ids] >= 0
    own[OUTPUT][both] = other[OUTPUT][places[ids[both]]].to(own[OUTPUT].dtype)
