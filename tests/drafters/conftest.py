from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike

from draftmux.arrays import frozen_view
from draftmux.generation import Generation
from draftmux.types import Context

MakeContext = Callable[[ArrayLike], Context]


@pytest.fixture(scope="session")
def make_context() -> MakeContext:
    """A context over the given committed tokens."""

    def make(tokens: ArrayLike) -> Context:
        committed = frozen_view(np.asarray(tokens, dtype=np.int64))
        return Context("request", committed, len(committed), 100, {}, (), Generation())

    return make
