"""What the tests of this plugin share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import settings

from draftmux.arrays import frozen_view
from draftmux.generation import Generation
from draftmux.types import Context

MakeContext = Callable[[Sequence[int]], Context]

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def make_context() -> MakeContext:
    """A context over the given committed tokens."""

    def make(tokens: Sequence[int]) -> Context:
        committed = frozen_view(np.asarray(tokens, dtype=np.int64))
        return Context("request", committed, len(committed), 100, {}, (), Generation())

    return make
