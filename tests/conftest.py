"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run: a red test is red again, and a green one proves what it proved yesterday.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
