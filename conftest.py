"""Settings of a whole test session, before torch is imported.

Tiny models lose more by sharing their work between threads than they gain, and workers share the cores already.
"""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
