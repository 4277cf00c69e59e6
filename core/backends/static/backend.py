"""Options of the static backend. Imports torch only when it is bound."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import evolve, frozen

from draftmux.backends.parallel.wrap import wrap
from draftmux.errors import ModelError
from draftmux.options import option

if TYPE_CHECKING:
    from draftmux.backends.support import Layout
    from draftmux.backends.taps import Recorder
    from draftmux.backends.target import Runner, Target
    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend
    from draftmux.types import Tap


@frozen
class StaticBackend:
    """Static KV slots, weights packed once, grouped-query attention without repeated keys; CPU or any GPU."""

    takes_model: ClassVar[bool] = True

    numerics: Literal["default", "exact"] = option(
        "exact: plain decoding and speculation give the same text in bfloat16 too, at a price in speed",
        default="default",
    )
    exact_rows: int = option("rows of every pass under `numerics: exact`", default=16, minimum=1)
    pack: bool = option("pack the weights for the CPU's matrix products when loading", default=True)
    compile: bool = option("run through torch.compile: a minute to start, then faster", default=False)
    prefill_chunk: int = option("prompt tokens per prefill pass; bounds memory", default=1024, minimum=1)
    self_check: bool = option("compare a tree pass with sequential decoding when loading", default=True)

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> BoundBackend:
        """Load the target; ModelError when it cannot be loaded or cannot run draft trees.

        Under torchrun, all processes share it, and only rank 0 returns from here.
        """
        if target is None:
            raise ModelError("the static backend needs a model; add `models: {target: {source: …}}`")
        return wrap(partial(self._load, target, taps))

    def _load(self, target: ModelSpec, taps: tuple[Tap, ...], processes: int) -> Target:
        from draftmux.cost_cache import setting as cost_key
        from draftmux.models.load import load_model, load_tokenizer

        model, eos_ids = load_model(target, processes)
        alone = self if processes == 1 else evolve(self, pack=False)  # a shard's layers do more than multiply
        bound = alone.over(model, eos_ids, load_tokenizer(target), taps)
        bound.cost_key = cost_key(model, target, "static", self) if processes == 1 else None
        return bound

    def over(
        self, model: Any, eos_ids: frozenset[int] = frozenset(), tokenizer: Any = None, taps: tuple[Tap, ...] = ()
    ) -> Target:
        """The target around a model that is loaded already; ModelError when it cannot run draft trees."""
        from draftmux.backends.static.packing import pack
        from draftmux.backends.target import Target

        packed = pack(model) if self.pack else 0
        chunk, check = self.prefill_chunk, self.self_check
        target = Target.build(model, self._runner, eos_ids, tokenizer, taps, prefill_chunk=chunk, self_check=check)
        target.pristine = not packed
        if self.compile:
            from draftmux.backends.static.compiling import warm_up

            warm_up(target)
        return target

    def _runner(self, model: Any, layout: Layout, recorder: Recorder) -> Runner:
        from draftmux.backends.static.runner import SlotRunner

        return SlotRunner(model, layout, recorder, self.exact_rows * (self.numerics == "exact"), self.compile)
