"""Notes what a plugin does that no answer shows: keys it looks up, forwards it runs, data it unpickles."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from draftmux.testing.conformance.subject import Subject

HEAVY = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "matmul", "linear", "embedding", "convolution", "conv1d")


@frozen(eq=False)
class Spied(Mapping[Any, Any]):
    """A mapping that notes the keys somebody looks up in vain; `said` names them in messages."""

    inner: Mapping[Any, Any]
    what: str
    missed: list[str]

    def __getitem__(self, key: Any) -> Any:
        if key not in self.inner:
            self.missed.append(f"{self.what} '{key}'")
        return self.inner[key]

    def __contains__(self, key: object) -> bool:
        if key not in self.inner:
            self.missed.append(f"{self.what} '{key}'")
        return key in self.inner

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner)

    def __len__(self) -> int:
        return len(self.inner)


@contextmanager
def forwards(seen: set[str]) -> Iterator[None]:
    """Note the operations of a neural network that run in the block."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.__name__.partition(".")[0]
            if name in HEAVY or "scaled_dot_product" in name:
                seen.add(name)
            return func(*args, **(kwargs or {}))

    with Noting():  # type: ignore[no-untyped-call]
        yield


class _Unpickled:
    """Where the one audit hook of this process writes while somebody listens; it cannot be removed, only be idle."""

    names: list[str] | None = None


@cache
def _listen() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if _Unpickled.names is not None and event == "pickle.find_class":
            _Unpickled.names.append(f"{arguments[0]}.{arguments[1]}")

    sys.addaudithook(hook)


@contextmanager
def unpickled(names: list[str]) -> Iterator[None]:
    """Note the classes that are looked up by unpickling in the block."""
    _listen()
    _Unpickled.names = names
    try:
        yield
    finally:
        _Unpickled.names = None


@contextmanager
def generators_moved(seed: int) -> Iterator[None]:
    """Put the random generators of the process elsewhere for the block; afterwards they are where they were."""
    import random

    import numpy as np
    import torch

    tensors = torch.default_generator  # torch.manual_seed would import torch's compiler
    before = random.getstate(), np.random.get_state(), tensors.get_state()
    random.seed(seed)
    np.random.seed(seed)
    tensors.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        tensors.set_state(before[2])


class BackendSpy:
    """A bound backend that notes in `calls` when it is made to work."""

    def __init__(self, inner: Any, calls: list[str]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if name in ("open", "score", "commit"):
            self._calls.append(name)
        return getattr(self._inner, name)


def undeclared(subject: Subject) -> str:
    """What the plugin declares, for messages."""
    needs, uses = subject.plugin.needs, subject.plugin.uses()
    taps = ", ".join(map(str, needs.taps)) or "no taps"
    return f"it declares {taps}, {', '.join(needs.models) or 'no models'} and uses {uses or 'no drafters'}"
