from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from draftmux.arrays import frozen_view
from draftmux.generation import Generation
from draftmux.types import Context

# The same examples in every run.
settings.register_profile("draftmux-rest", derandomize=True, deadline=None)
settings.load_profile("draftmux-rest")


@pytest.fixture(scope="session")
def make_context() -> Callable[[Sequence[int]], Context]:
    """A context over the given committed tokens."""

    def make(tokens: Sequence[int]) -> Context:
        committed = frozen_view(np.asarray(tokens, dtype=np.int64))
        return Context("request", committed, len(committed), 100, {}, (), Generation())

    return make


@pytest.fixture(scope="session")
def make_store() -> Callable[[Sequence[Sequence[int]]], Any]:
    """A datastore in memory over documents of token ids; without documents it holds a border alone."""
    from draftmux_rest.build import suffix_array
    from draftmux_rest.datastore import BORDER, Datastore

    def make(documents: Sequence[Sequence[int]]) -> Datastore:
        tokens = np.array([token for document in documents for token in (*document, BORDER)] or [BORDER], np.int32)
        return Datastore(None, tokens, suffix_array(tokens))  # type: ignore[arg-type]

    return make
