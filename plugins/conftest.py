"""Leaves out the tests of packages that are not installed: a bare set-up has only some of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

collect_ignore = [
    str(folder)
    for folder in Path(__file__).parent.glob("draftmux-*")
    if find_spec(folder.name.replace("-", "_")) is None
]
