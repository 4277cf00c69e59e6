"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples in every run: a red test is red again, and a green one proves what it proved yesterday.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """This process is the second of two, as torchrun says it; gives the seconds that it has slept."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    return slept
