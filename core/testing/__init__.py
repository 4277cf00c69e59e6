"""Drafters, targets and Hypothesis strategies that make decoding faults visible, and the conformance kit for plugins.

`check_drafter`, `check_router`, `check_verifier`, `check_backend` and `check_constraint` are for everyone who writes a
plugin. Importing this package imports no torch, transformers or Hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftmux.testing.conformance.kit import (
        check_backend,
        check_constraint,
        check_drafter,
        check_router,
        check_verifier,
    )
    from draftmux.testing.conformance.report import ConformanceError, ConformanceWarning, Report
    from draftmux.testing.conformance.subject import Setting

__all__ = [
    "ConformanceError",
    "ConformanceWarning",
    "Report",
    "Setting",
    "check_backend",
    "check_constraint",
    "check_drafter",
    "check_router",
    "check_verifier",
]
_MODULES = {"ConformanceError": "report", "ConformanceWarning": "report", "Report": "report", "Setting": "subject"}


def __getattr__(name: str) -> Any:
    """Import the kit when it is first asked for, so that pytest's start-up stays fast."""
    if name not in __all__:
        raise AttributeError(f"module 'draftmux.testing' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"draftmux.testing.conformance.{_MODULES.get(name, 'kit')}"), name)
