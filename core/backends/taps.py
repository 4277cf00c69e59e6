"""Reads hidden states out of a running transformers model through hooks. Knows the names of modules, no more."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from attrs import define, field

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from draftmux.types import Tap

ATTENTION = ("self_attn", "attn", "attention")
MLP = ("mlp", "feed_forward", "block_sparse_moe", "ffn")
# The module that reads the residual stream after the attention addition; Gemma's post-norms come before that addition.
AFTER_ATTENTION = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2", "ffn_norm")


@define(eq=False)
class Recorder:
    """Keeps the tapped states of the last pass, `(rows, n, d)` per tap. Other calls of the model leave no trace."""

    states: dict[Tap, Tensor] = field(factory=dict)
    taps: tuple[Tap, ...] = ()
    _thread: int | None = field(default=None, init=False)  # that a pass runs in

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While a pass runs in this thread."""
        before, self._thread = self._thread, threading.get_ident()
        try:
            yield
        finally:
            self._thread = before

    @property
    def _records(self) -> bool:
        # A compiler that looks into the model sees passes only.
        return torch.compiler.is_compiling() or self._thread == threading.get_ident()

    def watch(self, model: nn.Module, taps: Sequence[Tap]) -> None:
        """Hook the model; ModelError when a tap does not exist in it."""
        self.taps = tuple(taps)
        layers = decoder_layers(model) if taps else []
        for tap in taps:
            try:
                self._hook(layers[tap.index(len(layers))], tap)
            except ValueError as error:
                raise ModelError(str(error)) from error

    def take(self) -> dict[Tap, Tensor]:
        """The states of the last pass; forgets them."""
        states, self.states = self.states, {}
        return states

    def _hook(self, layer: nn.Module, tap: Tap) -> None:
        def keep_output(module: Any, inputs: Any, output: Any) -> None:
            if self._records:
                self.states[tap] = output[0] if isinstance(output, tuple) else output

        def keep_input(module: Any, inputs: Any) -> None:
            if self._records:
                self.states[tap] = inputs[0]

        if tap.kind == "resid_post":
            layer.register_forward_hook(keep_output)
        elif tap.kind == "resid_mid":
            _refuse_unusual(layer, tap)
            _child(layer, AFTER_ATTENTION, tap).register_forward_pre_hook(keep_input)
        else:
            _child(layer, ATTENTION if tap.kind == "attn_out" else MLP, tap).register_forward_hook(keep_output)


def _refuse_unusual(layer: nn.Module, tap: Tap) -> None:
    """The stream between attention and MLP is no module's input where both run in parallel, or norms follow them."""
    post_norm = hasattr(layer, "post_feedforward_layernorm") and not hasattr(layer, "pre_feedforward_layernorm")
    if post_norm or getattr(layer, "use_parallel_residual", False):
        raise ModelError(
            f"tap {tap}: {type(layer).__name__} adds attention and MLP in its own way, so there is no such place to "
            f"read; use attn_out, mlp_out or resid_post"
        )


def decoder_layers(model: nn.Module) -> Sequence[nn.Module]:
    """The list of decoder layers, wherever the architecture keeps it."""
    base: Any = getattr(model, str(model.base_model_prefix), None) or model
    for name in ("layers", "h", "blocks"):
        found = getattr(base, name, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    raise ModelError(f"{type(model).__name__} has no known list of decoder layers; taps cannot be read from it")


def _child(layer: nn.Module, names: Sequence[str], tap: Tap) -> nn.Module:
    for name in names:
        found = getattr(layer, name, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    children = ", ".join(name for name, _ in layer.named_children())
    raise ModelError(f"tap {tap}: {type(layer).__name__} has none of {', '.join(names)}; it has {children}")
