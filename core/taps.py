"""Places in the target where hidden states are read, and numbers read off them. Knows nothing of models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Self

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

TAP_KINDS = ("attn_out", "resid_mid", "mlp_out", "resid_post")
MIDDLE = 1 << 20  # a layer from here on counts from the middle one


@frozen(order=True)
class Tap:
    """A named place in the target where hidden states are read.

    `layer` counts decoder layers from 0 (negative: from the end; `MIDDLE` is layer L // 2 of L, `MIDDLE - 1` the one
    before). `attn_out` is the attention block's output before
    any norm that follows it and the residual addition, `resid_mid` the residual stream after that addition, `mlp_out`
    the MLP's output likewise, `resid_post` the layer's output. Written `14.attn_out` in files, or `mid-1.resid_post`.
    """

    layer: int
    kind: Literal["attn_out", "resid_mid", "mlp_out", "resid_post"]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `LAYER.KIND`; ValueError when it is neither."""
        match = re.fullmatch(r"(-?[0-9]{1,5}|mid([+-][0-9]{1,5})?)\.(\w+)", text)
        if match is None or match[3] not in TAP_KINDS:
            raise ValueError(f"tap '{text}' is not LAYER.KIND with KIND one of {', '.join(TAP_KINDS)}")
        layer = MIDDLE + int(match[2] or 0) if match[1].startswith("mid") else int(match[1])
        return cls(layer, match[3])  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.name}.{self.kind}"

    @property
    def name(self) -> str:
        """The layer, as files write it."""
        if self.layer < MIDDLE // 2:
            return str(self.layer)
        return f"mid{self.layer - MIDDLE:+}" if self.layer != MIDDLE else "mid"

    def index(self, layers: int) -> int:
        """The layer's number in a model of so many, from 0; ValueError when it has none of that number."""
        middle = layers // 2 - MIDDLE if self.layer >= MIDDLE // 2 else 0
        index = self.layer + (middle or layers * (self.layer < 0))
        if not 0 <= index < layers:
            raise ValueError(f"tap {self} is needed; the target has layers 0 to {layers - 1}")
        return index


@frozen(eq=False)
class Reading:
    """A number that is read off a tapped state of every row: `read` takes states `(rows, d)` on their device, and gives
    `(rows,)` there.

    The engine launches it right behind a pass, and fetches it with the tokens that the target picks: a router that
    asks for one in its `needs`, once bound, does not wait for the device a second time.
    """

    tap: Tap
    read: Callable[[Tensor], Tensor]
