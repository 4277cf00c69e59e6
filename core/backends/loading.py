"""From `models.target` to a bound target: what all backends of transformers models do alike when they are bound."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from draftmux.backends.parallel.wrap import wrap
from draftmux.errors import ModelError

if TYPE_CHECKING:
    from draftmux.backends.target import Target
    from draftmux.models.source import ModelSpec
    from draftmux.protocols import BoundBackend
    from draftmux.types import Tap


class Wrapping(Protocol):
    """A backend's options, which know how to put a target around a loaded model."""

    def over(
        self, model: Any, eos_ids: frozenset[int], tokenizer: Any, taps: tuple[Tap, ...], processes: int
    ) -> Target:
        """The target, or one of several processes' share of it; ModelError when it cannot run draft trees."""
        ...


def bind(name: str, backend: Wrapping, target: ModelSpec | None, taps: tuple[Tap, ...]) -> BoundBackend:
    """Load the target for the backend called `name`; ModelError when it cannot be loaded or cannot run draft trees.

    Under torchrun, all processes share it, and only rank 0 returns from here.
    """
    if target is None:
        raise ModelError(f"the {name} backend needs a model; add `models: {{target: {{source: …}}}}`")
    return wrap(partial(_load, name, backend, target, taps))


def _load(name: str, backend: Wrapping, target: ModelSpec, taps: tuple[Tap, ...], processes: int) -> Target:
    from draftmux.cost_cache import setting
    from draftmux.models.load import load_model, load_tokenizer

    model, eos_ids = load_model(target, processes)
    bound = backend.over(model, eos_ids, load_tokenizer(target), taps, processes)
    if processes == 1:  # else one process might remember what another measures
        bound.cost_key = setting(model, target, name, backend)
    return bound
