"""Settings of a whole test session, before torch is imported: workers that share cores use one thread each."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
