import numpy as np
from draftmux.testing import check_drafter
from draftmux.types import Budget

from draftmux_echo.drafter import Echo


def test_echo_keeps_the_rules_of_a_drafter() -> None:
    check_drafter(Echo())


def test_echo_guesses_that_the_ends_of_the_text_come_again() -> None:
    guesses = Echo(width=3).draft(np.array([2, 3, 5, 7]), Budget())
    assert guesses == [[3, 5, 7], [5, 7], [7]]
