"""Compiled passes: torch.compile, once for all numbers of rows. Attention stays an opaque step of the graph.

One graph has a symbolic number of rows, so that it is made once. Rows of size 1 are special to the compiler, so a pass
has at least two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from draftmux.errors import ModelError
from draftmux.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftmux.costs import CostCurve

Compilation = Literal[False, "auto", True]
LEAST_ROWS = 2
USUAL = (1, 8, 16)  # rows that eager and compiled passes are compared by: plain decoding, and drafts that pay on a CPU


class Compiled:
    """A model as a compiled call. The first call compiles it; ModelError where that fails, or, if `optional`, no more
    than the model."""

    def __init__(self, model: Any, optional: bool = False) -> None:
        self._name, self._model = type(model).__name__, model
        self._optional = optional
        self._call: Callable[..., Any] = torch.compile(model, dynamic=True)
        self._ready = False

    def __call__(self, **inputs: Any) -> Any:
        if self._ready:
            return self._call(**inputs)
        try:
            with working("compiling the target: about a minute, and less from the second time on"):
                found = self._call(**inputs)
        except Exception as error:  # a compiler that is missing, or one that cannot take the model
            if self._optional:
                self._call, self._ready = self._model, True
                return self._call(**inputs)
            raise ModelError(
                f"{self._name} could not be compiled: {' '.join(str(error).split())[:300]}. A C++ compiler must be "
                f"installed; or set `backend: {{compile: false}}`"
            ) from error
        self._ready = True
        return found


def seconds(curve: CostCurve) -> float:
    """Of one pass of each usual size."""
    return sum(map(curve.at, USUAL))
