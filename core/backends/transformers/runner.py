"""Passes through transformers' own attention: dense masks, any device, rows padded to the widest of the pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from attrs import define, field

from draftmux.backends.cache import Placement, SlotCache
from draftmux.backends.masks import Feed, attention_mask, stacked_states
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from draftmux.backends.support import Layout
    from draftmux.backends.taps import Recorder
    from draftmux.costs import CostCurve
    from draftmux.types import Tap


@define(eq=False)
class MaskedRunner:
    """One model call a pass."""

    model: Any
    layout: Layout
    recorder: Recorder
    additive: bool  # eager attention adds its mask, and would add booleans as 0 and 1
    cache: SlotCache = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.cache = SlotCache(self.layout.layers)

    @classmethod
    def over(cls, model: Any, layout: Layout, recorder: Recorder, attention: str) -> MaskedRunner:
        """Set the model's attention; ModelError when it does not support it."""
        try:
            model.set_attn_implementation(attention)
        except (ValueError, ImportError) as error:
            other = "eager" if attention != "eager" else "sdpa"
            raise ModelError(
                f"{type(model).__name__} does not support attention '{attention}'; "
                f"try `backend: {{use: transformers, attention: {other}}}`"
            ) from error
        return cls(model, layout, recorder, attention == "eager")

    def width(self, rows: int) -> int:
        """How many rows a pass over that many takes: as many."""
        return rows

    def shapes(self, rows: int) -> Sequence[int]:
        """None: any number of rows can be passed as it is."""
        return ()

    def choose(self, curve_of: Callable[[str], CostCurve]) -> CostCurve | None:
        """Its passes have one form."""

    def idle(self) -> None:
        """Gives the cache's memory back."""
        self.cache.release()

    def prefill(self, row: int, feed: Feed) -> dict[Tap, Tensor]:
        """Put a run of prompt tokens into the cache; taps `(n, d)`."""
        self._forward(row, [feed], logits_to_keep=1)
        return {tap: states[0] for tap, states in self.recorder.take().items()}

    def run(self, first: int, feeds: Sequence[Feed]) -> tuple[Tensor, dict[Tap, Tensor]]:
        """Logits `(rows, n, V)` and taps `(rows, n, d)`, n the widest feed's."""
        width = max(len(feed.tokens) for feed in feeds)
        return self._forward(first, [feed.padded(width) for feed in feeds]), self.recorder.take()

    def _forward(self, first: int, feeds: Sequence[Feed], logits_to_keep: int = 0) -> Tensor:
        self.cache.aim(Placement(first, first + len(feeds), tuple(f.slot for f in feeds), len(feeds[0].tokens)))
        with self.recorder.recording():
            return self.model(  # type: ignore[no-any-return]
                input_ids=self._tensor(np.stack([feed.tokens for feed in feeds])),
                position_ids=self._tensor(np.stack([feed.positions for feed in feeds])),
                attention_mask=self._masks(feeds),
                cache=self.cache,
                use_cache=True,
                logits_to_keep=logits_to_keep,
                **stacked_states(feeds),
            ).logits

    def _masks(self, feeds: Sequence[Feed]) -> Any:
        """One mask, or one per kind of layer when the model mixes them."""
        masks = {kind: self._mask(attention_mask(feeds, self.layout.window_of(kind))) for kind in self.layout.kinds}
        return masks if self.layout.mask_per_kind else next(iter(masks.values()))

    def _mask(self, visible: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        mask = self._tensor(visible)
        if not self.additive:
            return mask
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device).masked_fill(~mask, lowest)

    def _tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(array).to(self.model.device, non_blocking=True)
