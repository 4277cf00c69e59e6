"""Options of the transformers backend. Imports torch only when it is bound."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import frozen

from draftmux.backends import loading
from draftmux.options import option

if TYPE_CHECKING:
    from draftmux.backends.target import Target
    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend
    from draftmux.types import Tap


@frozen
class TransformersBackend:
    """Any causal language model that transformers can run, with a KV cache of its own making for trees and batches."""

    takes_model: ClassVar[bool] = True

    attention: Literal["sdpa", "eager"] = option("transformers' attention implementation", default="sdpa")
    prefill_chunk: int = option("prompt tokens per prefill pass; bounds memory", default=1024, minimum=1)
    self_check: bool = option("compare a tree pass with sequential decoding when loading", default=True)

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> BoundBackend:
        """Load the target; ModelError when it cannot be loaded or cannot run draft trees."""
        return loading.bind("transformers", self, target, taps)

    def over(
        self,
        model: Any,
        eos_ids: frozenset[int] = frozenset(),
        tokenizer: Any = None,
        taps: tuple[Tap, ...] = (),
        processes: int = 1,
    ) -> Target:
        """The target around a model that is loaded already; ModelError when it cannot run draft trees."""
        from draftmux.backends.target import Target
        from draftmux.backends.transformers.runner import MaskedRunner

        target = Target.over(model, partial(MaskedRunner.over, attention=self.attention), taps)
        return target.ready(self, eos_ids, tokenizer)
