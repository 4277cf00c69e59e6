"""Settings of a whole test session, before torch is imported.

Tiny models lose more by sharing their work between threads than they gain, and workers share the cores already.
"""

from __future__ import annotations

import os
from pathlib import Path

if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported, which transformers may do
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DRAFTMUX_COST_CACHE", "off")  # a test must leave nothing in the cache folder
