"""Options of the transformers backend. Imports torch only when it is bound."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import frozen

from draftmux.backends.parallel.wrap import wrap
from draftmux.errors import ModelError
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
        """Load the target; ModelError when it cannot be loaded or cannot run draft trees.

        Under torchrun, all processes share it, and only rank 0 returns from here.
        """
        if target is None:
            raise ModelError("the transformers backend needs a model; add `models: {target: {source: …}}`")
        return wrap(partial(self._load, target, taps))

    def _load(self, target: ModelSpec, taps: tuple[Tap, ...], processes: int) -> Target:
        from draftmux.cost_cache import setting as cost_key
        from draftmux.models.load import load_model, load_tokenizer

        model, eos_ids = load_model(target, processes)
        bound = self.over(model, eos_ids, load_tokenizer(target), taps)
        bound.cost_key = cost_key(model, target, "transformers", self) if processes == 1 else None
        return bound

    def over(
        self, model: Any, eos_ids: frozenset[int] = frozenset(), tokenizer: Any = None, taps: tuple[Tap, ...] = ()
    ) -> Target:
        """The target around a model that is loaded already; ModelError when it cannot run draft trees."""
        from draftmux.backends.target import Target
        from draftmux.backends.transformers.runner import MaskedRunner

        make = partial(MaskedRunner.over, attention=self.attention)
        chunk, check = self.prefill_chunk, self.self_check
        return Target.build(model, make, eos_ids, tokenizer, taps, prefill_chunk=chunk, self_check=check)
