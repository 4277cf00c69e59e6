"""The processes of a training run: one, or as many as `torchrun` or `accelerate launch` has started."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelerate import PartialState

LONGEST = timedelta(days=14)  # that the others wait while one works


def processes() -> PartialState:
    """This one and the others. To be asked before a model is loaded: it settles on which device."""
    from accelerate import PartialState

    return PartialState(timeout=LONGEST) if "RANK" in os.environ else PartialState()
