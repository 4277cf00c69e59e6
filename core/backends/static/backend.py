"""Options of the static backend. Imports torch only when it is bound."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import frozen

from draftmux.backends import loading
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
    exact_rows: int = option(
        "rows of every pass under `numerics: exact`, a multiple of 8", default=16, minimum=8, maximum=256
    )
    pack: bool = option("pack the weights for the CPU's matrix products when loading", default=True)
    compile: Literal[False, "auto", True] = option(
        "run through torch.compile: a slow start, then faster passes; auto: where timing shows it is faster",
        default=False,
    )
    prefill_chunk: int = option("prompt tokens per prefill pass; bounds memory", default=1024, minimum=1)
    self_check: bool = option("compare a tree pass with sequential decoding when loading", default=True)

    def __attrs_post_init__(self) -> None:
        if self.exact_rows % 8:  # else vectorised functions end in the middle of a row, and go on one by one
            raise ValueError(f"'exact_rows' must be a multiple of 8, got {self.exact_rows}")

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> BoundBackend:
        """Load the target; ModelError when it cannot be loaded or cannot run draft trees."""
        return loading.bind("static", self, target, taps)

    def over(
        self,
        model: Any,
        eos_ids: frozenset[int] = frozenset(),
        tokenizer: Any = None,
        taps: tuple[Tap, ...] = (),
        processes: int = 1,
    ) -> Target:
        """The target around a model that is loaded already; ModelError when it cannot run draft trees.

        The model's linear layers are replaced by packed ones.
        """
        from draftmux.backends.self_check import check_exact
        from draftmux.backends.static.packing import is_packed
        from draftmux.backends.target import Target
        from draftmux.types import Draft

        if processes > 1 and self.numerics == "exact":
            raise ModelError(
                "`numerics: exact` holds in one process: between several, sums are made in an order of their own; use "
                "`numerics: default`, or start a single process"
            )
        # A layer that is shared between processes does more than multiply.
        target = Target.over(model, partial(self._runner, self.pack and processes == 1), taps)
        target.pristine, target.exact = not is_packed(model), self.numerics == "exact"
        target.ready(self, eos_ids, tokenizer)
        if target.exact and self.self_check:
            check_exact(target, Draft([0] * 5, [-1, 0, 1, 0, 3]))
        return target

    def _runner(self, packing: bool, model: Any, layout: Layout, recorder: Recorder) -> Runner:
        from draftmux.backends.static.packing import pack
        from draftmux.backends.static.runner import SlotRunner

        if packing:
            pack(model)
        return SlotRunner(model, layout, recorder, self.exact_rows * (self.numerics == "exact"), self.compile)
