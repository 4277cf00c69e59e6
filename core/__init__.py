"""draftmux: speculative decoding with pluggable drafters, routers and verifiers, composed in YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftmux.pipeline import Pipeline, load
    from draftmux.results import Delta, Result

__version__ = "0.1.0"
__all__ = ["Delta", "Pipeline", "Result", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import the heavy parts when they are first asked for, so that command-line start-up stays fast."""
    if name in ("Pipeline", "load"):
        from draftmux import pipeline

        return getattr(pipeline, name)
    if name in ("Delta", "Result"):
        from draftmux import results

        return getattr(results, name)
    raise AttributeError(f"module 'draftmux' has no attribute '{name}'")
