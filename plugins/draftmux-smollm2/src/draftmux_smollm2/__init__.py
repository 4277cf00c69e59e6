"""Publishes the model name `smollm2`. Knows nothing of the weights but where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.hookspecs import hookimpl

if TYPE_CHECKING:
    from draftmux.hookspecs import Register


@hookimpl
def register_models(register: Register) -> None:
    """Publish SmolLM2-135M-Instruct."""
    register("smollm2", "draftmux_smollm2.model:SMOLLM2", "SmolLM2-135M-Instruct, runs on two CPU cores")
