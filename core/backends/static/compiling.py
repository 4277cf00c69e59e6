"""Compiled passes: torch.compile, once for all numbers of rows. Attention stays an opaque step of the graph.

One graph with a symbolic number of rows is as fast as one graph for each number (docs/log.md), and takes a ninth of the
time to make. Rows of size 1 are special to the compiler, so a pass has at least two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from draftmux.errors import ModelError
from draftmux.progress import working
from draftmux.protocols import Row
from draftmux.types import Draft

if TYPE_CHECKING:
    from draftmux.backends.target import Target

LEAST_ROWS = 2


def compiled(model: Any) -> Any:
    """The model as a compiled call. Nothing is compiled before the first pass."""
    return torch.compile(model, dynamic=True)


def warm_up(target: Target) -> None:
    """Run passes of two sizes, so that no request pays for compiling; ModelError when that fails."""
    try:
        with working("compiling the target: about a minute, and less from the second time on"):
            sequence = target.open([0, 0]).sequence
            for rows in (LEAST_ROWS, 2 * LEAST_ROWS):
                target.score([Row(sequence, 0, Draft.chain([0] * (rows - 1)))])
            target.close(sequence)
    except Exception as error:  # a compiler that is missing, or one that cannot take the model
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{type(target.model).__name__} could not be compiled: {reason}. A C++ compiler must be installed; or set "
            f"`backend: {{compile: false}}`"
        ) from error
