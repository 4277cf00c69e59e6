from __future__ import annotations

import pytest

from draftmux.testing import check_drafter


@pytest.mark.parametrize("draft", ["path", "tree"])
def test_it_conforms(draft: str) -> None:
    check_drafter("suffix", draft=draft)


def test_sharing_between_requests_is_what_it_says() -> None:
    """With `shared` one request's output serves the next, which the kit would call a leak: that check is left out."""
    check_drafter("suffix", shared=True, skip=["own-state"])
