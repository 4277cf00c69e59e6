from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from draftmux.testing import check_drafter

drafter = pytest.importorskip("draftmux_rest.drafter", reason="install it: pip install -e plugins/draftmux-rest")


def test_it_conforms(make_store: Callable[[Sequence[Sequence[int]]], Any]) -> None:
    documents = np.random.default_rng(0).integers(0, 40, (30, 50)).tolist()
    check_drafter(drafter.Retrieval(drafter.Rest(datastore="in memory"), make_store(documents)))
