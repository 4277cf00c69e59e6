"""Options of the h100 backend. Imports torch only when it is bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import evolve, frozen

from draftmux.backends import loading
from draftmux.backends.parallel.wrap import refuse_several
from draftmux.errors import ModelError
from draftmux.options import option

if TYPE_CHECKING:
    from draftmux.backends.support import Layout
    from draftmux.backends.taps import Recorder
    from draftmux.backends.target import Runner, Target
    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend
    from draftmux.types import Tap

CAPABILITY = (9, 0)
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 208)


@frozen
class H100Backend:
    """Static KV, one captured CUDA graph per number of rows, a Triton tree-attention kernel; H100, H200 and newer."""

    takes_model: ClassVar[bool] = True

    context: int = option(
        "KV slots per sequence at the start; more are added as needed", default=4096, minimum=1, maximum=1 << 24
    )
    sequences: int = option(
        "sequences that have slots from the start; more are added as needed", default=4, minimum=1, maximum=1024
    )
    rows: tuple[int, ...] = option(
        "numbers of rows a pass is captured for; drafts are padded to the next", default=BUCKETS
    )
    numerics: Literal["default", "exact"] = option(
        "exact: plain decoding and chains of drafts give the same text in bfloat16 too, at a price in speed",
        default="default",
    )
    exact_rows: int = option("rows of every pass under `numerics: exact`", default=16, minimum=1, maximum=256)
    prefill_chunk: int = option("prompt tokens per prefill pass; bounds memory", default=2048, minimum=1)
    self_check: bool = option("compare a tree pass with sequential decoding when loading", default=True)

    def __attrs_post_init__(self) -> None:
        if not self.rows or list(self.rows) != sorted(set(self.rows)) or not 1 <= self.rows[0] <= self.rows[-1] <= 1024:
            raise ValueError(f"'rows' must rise from at least 1 to at most 1024, got {list(self.rows)}")

    def bind(self, target: ModelSpec | None, taps: tuple[Tap, ...]) -> BoundBackend:
        """Load the target; ModelError on other hardware, or when the model cannot run draft trees."""
        from draftmux.backends.h100.tree_attention import require_triton

        refuse_several("h100")
        if target is not None:
            require_device(target.device)
            target = evolve(target, device="cuda" if target.device == "auto" else target.device)
        require_triton()
        return loading.bind("h100", self, target, taps)

    def over(
        self,
        model: Any,
        eos_ids: frozenset[int] = frozenset(),
        tokenizer: Any = None,
        taps: tuple[Tap, ...] = (),
        processes: int = 1,
    ) -> Target:
        """The target around a model that is loaded already; ModelError when it cannot run draft trees."""
        from draftmux.backends.h100.graphs import GraphRunner
        from draftmux.backends.self_check import check_exact
        from draftmux.backends.target import Target
        from draftmux.types import Draft

        target = Target.over(model, self._runner, taps).ready(self, eos_ids, tokenizer)
        if self.numerics == "exact" and self.self_check:
            check_exact(target, Draft.chain([0] * 5))
        assert isinstance(target.runner, GraphRunner)
        target.runner.settle()  # by now it is known which layers are alike
        return target

    def _buckets(self) -> tuple[int, ...]:
        return (self.exact_rows,) if self.numerics == "exact" else self.rows

    def _runner(self, model: Any, layout: Layout, recorder: Recorder) -> Runner:
        from draftmux.backends.h100.graphs import GraphRunner

        exact = self.numerics == "exact"
        room = {"sequences": self.sequences, "context": self.context}
        return GraphRunner(model, layout, recorder, buckets=self._buckets(), exact=exact, **room)


def require_device(name: str) -> None:
    """ModelError where there is no CUDA device that the kernels were written for; it names the backend to use."""
    import torch

    if not torch.cuda.is_available() or name == "cpu":
        found = "the model is put on the CPU" if name == "cpu" else "there is no CUDA device here"
        raise ModelError(f"the h100 backend needs a CUDA device, and {found}; use `backend: {{use: static}}`")
    index = torch.device("cuda" if name == "auto" else name).index or 0
    capability = torch.cuda.get_device_capability(index)
    if capability < CAPABILITY:
        raise ModelError(
            f"the h100 backend needs compute capability 9.0 (H100, H200) or more; {torch.cuda.get_device_name(index)} "
            f"has {capability[0]}.{capability[1]}; use `backend: {{use: static}}`"
        )
