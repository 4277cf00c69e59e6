"""Where a draft model comes from, and whether its vocabulary is the target's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftmux.backends.beside import host_of
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from draftmux.backends.target import Target
    from draftmux.drafters.sps.drafter import Sps
    from draftmux.models.source import ModelSpec
    from draftmux.protocols import Resources


def load(options: Sps, resources: Resources) -> tuple[Target, Vocabulary]:
    """The draft model on the target's backend, and what its logits stand for."""
    backend = resources.backend
    assert backend is not None
    beside = host_of(backend, "sps")
    if options.layers:
        from draftmux.drafters.sps.layers import first_layers

        model = first_layers(backend, options.layers, options.adapter)
        return beside(model, self_check=options.adapter is None), Vocabulary(backend.vocab_size)
    assert options.model is not None
    spec = resources.models[options.model]
    return beside(_loaded(spec, backend)), _vocabulary(options.model, spec, resources)


def _loaded(spec: ModelSpec, backend: Any) -> Any:
    from draftmux.models.load import load_model, pick_device

    model, _ = load_model(spec)
    if model.device != backend.device:
        asked = pick_device(spec.device)
        raise ModelError(
            f"the draft model is on {asked} and the target on {backend.device}; set `device` of both alike"
        )
    return model


def _vocabulary(name: str, spec: ModelSpec, resources: Resources) -> Vocabulary:
    """All ids of the target; ModelError when an id means one text to the target and another to the draft model."""
    from draftmux.models.load import load_tokenizer

    assert resources.backend is not None
    size, theirs = resources.backend.vocab_size, load_tokenizer(spec)
    if resources.tokenizer is None or theirs is None:
        return Vocabulary(size)
    refuse_other_ids(name, resources.tokenizer.get_vocab(), theirs.get_vocab())
    return Vocabulary(size)


def refuse_other_ids(name: str, ours: dict[str, int], theirs: dict[str, int]) -> None:
    """ModelError unless tokens that both know have one id, and neither gives an id of both to another text.

    A longer table of added tokens, or padding of an embedding, is no difference: cut, they are the same.
    """
    swapped = sorted(token for token, number in theirs.items() if ours.get(token, number) != number)
    if swapped:
        token = swapped[0]
        raise ModelError(
            f"draft model '{name}': {len(swapped)} tokens have other ids than in the target, the first is {token!r}, "
            f"{theirs[token]} instead of {ours[token]}; a draft model must have the target's vocabulary"
        )
    taken = {number: token for token, number in ours.items()}
    other = sorted(number for token, number in theirs.items() if taken.get(number, token) != token)
    if other:
        texts = {number: token for token, number in theirs.items()}
        raise ModelError(
            f"draft model '{name}': {len(other)} ids stand for other texts than in the target, first {other[0]}, "
            f"{texts[other[0]]!r} instead of {taken[other[0]]!r}; a draft model must have the target's vocabulary"
        )
