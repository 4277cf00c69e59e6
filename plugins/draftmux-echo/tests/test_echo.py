from __future__ import annotations

import numpy as np
import pytest

from draftmux.types import Budget

echo = pytest.importorskip("draftmux_echo.drafter", reason="install it: pip install -e plugins/draftmux-echo")


@pytest.mark.parametrize(("width", "guess"), [(1, [7]), (2, [5, 7]), (9, [3, 5, 7])])
def test_guesses_the_end_again(width: int, guess: list[int]) -> None:
    assert echo.Echo(width=width).draft(np.array([3, 5, 7]), Budget()) == [guess]
