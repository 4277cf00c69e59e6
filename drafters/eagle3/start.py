"""A head that goes on from the weights of another: with more answers, other prompts, another draft vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import torch

from draftmux.drafters.eagle3.checkpoint import build, read, refuse_other_target
from draftmux.drafters.eagle3.model import HeadShape
from draftmux.drafters.eagle3.sizes import Fit
from draftmux.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from draftmux.drafters.eagle3.model import Eagle3Head
    from draftmux.types import Tap

TARGET = "embed_tokens.weight"  # what stays the target's own
OUTPUT = "lm_head.weight"  # a row a token
SHAPE = [each.name for each in attrs.fields(HeadShape) if each.name != "draft_vocab_size"]
# Of the config. Some of it no tensor's shape would tell.
CONFIG = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "rms_norm_eps", "rope_parameters"),
)


@torch.no_grad()
def begin_from(head: Eagle3Head, ids: Tensor, taps: Sequence[Tap], source: str, model: Any) -> None:
    """Give `head`, whose draft vocabulary is `ids (K,)`, the weights of the head at `source`.

    Tokens that only `head` drafts keep their rows. ModelError when `source` cannot be loaded or is of another target,
    RequestError when it is of another size or reads other hidden states.
    """
    refuse_other_target(source, None, model)
    form, tensors = read(source)
    _check_taps(source, form.taps, taps, model.config.get_text_config(decoder=True).num_hidden_layers)
    given, known = build(source, form, tensors, Fit.of(model, len(taps)))
    _check_alike(source, given, head)
    own, other = head.state_dict(), given.state_dict()
    for name in own.keys() - {TARGET, OUTPUT}:
        own[name].copy_(other[name])
    known = torch.arange(len(other[OUTPUT])) if known is None else known.cpu()
    places = torch.full((model.config.get_text_config(decoder=True).vocab_size,), -1)
    places[known] = torch.arange(len(known))
    both = places[ids] >= 0
    own[OUTPUT][both] = other[OUTPUT][places[ids[both]]].to(own[OUTPUT])


def _check_taps(source: str, own: Sequence[Tap], wanted: Sequence[Tap], layers: int) -> None:
    try:
        same = [tap.index(layers) for tap in own] == [tap.index(layers) for tap in wanted]
    except ValueError:  # a layer that the target has not
        same = False
    if not same:
        names = (", ".join(map(str, each)) for each in (own, wanted))
        raise RequestError(
            "--start {}: it reads {}, and {} are to be read; give its own with --tap".format(source, *names)
        )


def _check_alike(source: str, given: Eagle3Head, head: Eagle3Head) -> None:
    pairs = [(name, getattr(given.config, name), getattr(head.config, name)) for name in CONFIG]
    pairs += [(name, getattr(given.shape, name), getattr(head.shape, name)) for name in SHAPE]
    odd = [f"{name} is {theirs}, and {ours} here" for name, theirs, ours in pairs if theirs != ours]
    odd += [f"{name} is in one of both" for name in sorted(given.state_dict().keys() ^ head.state_dict().keys())]
    if odd:
        raise RequestError(
            f"--start {source} is a head of another size or kind than `train eagle3` makes for this target: {odd[0]}; "
            f"leave out --start, or give a head that was trained here with the same --intermediate"
        )
