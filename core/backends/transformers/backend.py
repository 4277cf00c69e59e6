"""Options of the transformers backend. Imports torch only when it is bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from attrs import frozen

from draftmux.errors import ModelError
from draftmux.options import option

if TYPE_CHECKING:
    from draftmux.backends.transformers.target import TransformersTarget
    from draftmux.models.source import ModelSpec
    from draftmux.types import Tap


@frozen
class TransformersBackend:
    """Any causal language model that transformers can run, with a KV cache of its own making for trees and batches."""

    takes_model: ClassVar[bool] = True

    attention: Literal["sdpa", "eager"] = option("transformers' attention implementation", default="sdpa")
    prefill_chunk: int = option("prompt tokens per prefill pass; bounds memory", default=1024, minimum=1)
    self_check: bool = option("compare a tree pass with sequential decoding when loading", default=True)

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> TransformersTarget:
        """Load the target; ModelError when it cannot be loaded or cannot run draft trees."""
        from draftmux.backends.transformers.target import TransformersTarget
        from draftmux.models.load import load_model, load_tokenizer

        if target is None:
            raise ModelError("the transformers backend needs a model; add `models: {target: {source: …}}`")
        model, eos_ids = load_model(target)
        return TransformersTarget.build(self, model, eos_ids, load_tokenizer(target), taps)
