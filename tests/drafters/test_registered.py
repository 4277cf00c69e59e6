"""The shipped drafters are what their names promise, and importing them stays cheap."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import draftmux.drafters
from draftmux.protocols import Drafter
from draftmux.registry import Entry

EXAMPLES: dict[str, dict[str, Any]] = {"pld": {}, "copyspec": {}, "context-copy": {}, "merge": {"of": ["a", "b"]}}


def registered() -> dict[str, str]:
    targets: dict[str, str] = {}

    def register(name: str, target: str, help: str = "") -> None:
        targets[name] = target

    draftmux.drafters.register_drafters(register)
    return targets


def test_every_name_loads_a_drafter() -> None:
    targets = registered()
    for name, options in EXAMPLES.items():
        plugin = Entry("drafter", name, targets[name], "", "draftmux", "0", "builtin").load()
        assert isinstance(plugin(**options), Drafter)


def test_importing_them_does_not_import_torch() -> None:
    modules = {target.partition(":")[0] for name, target in registered().items() if name in EXAMPLES}
    code = f"import sys, {', '.join(sorted(modules))}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
