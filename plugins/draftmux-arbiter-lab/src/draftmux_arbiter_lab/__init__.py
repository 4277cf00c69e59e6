"""Publishes the pair of models to study arbiters on. Knows nothing of their weights but where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_models(register: Register) -> None:
    """Publish target and draft model."""
    register("arbiter-lab-target", "draftmux_arbiter_lab.models:TARGET", "1.8 M parameters, poor at rearranging")
    register("arbiter-lab-draft", "draftmux_arbiter_lab.models:DRAFT", "0.4 M parameters, poor at sums and swaps")
