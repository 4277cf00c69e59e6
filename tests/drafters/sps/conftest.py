"""A draft model at work on a tiny target, without a pipeline file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from draftmux.backends.beside import Reader
from draftmux.backends.static.backend import StaticBackend
from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.costs import CostCurve
from draftmux.drafters.neural.laws import Vocabulary
from draftmux.drafters.sps.bound import BoundSps
from draftmux.drafters.sps.drafter import Sps
from draftmux.testing.targets import tiny_model

MakeTarget = Callable[..., Any]
MakeSps = Callable[..., BoundSps]


@pytest.fixture(scope="session")
def make_target() -> MakeTarget:
    """A tiny target of its own in any number format."""
    kinds: Mapping[str, Any] = {"static": StaticBackend, "transformers": TransformersBackend}

    def make(backend: str = "static", dtype: torch.dtype = torch.float64, name: str = "llama", **options: Any) -> Any:
        model = copy.deepcopy(tiny_model(name, options.pop("positions", 256))).to(dtype)
        target = kinds[backend](self_check=False).over(model, **options)
        target._curve = CostCurve((1,), (1.0,))  # measured, open budgets would have another size in every run
        return target

    return make


@pytest.fixture(scope="session")
def make_sps() -> MakeSps:
    """Drafts for a target with any model: by default with the target's twin."""

    def make(target: Any, model: Any = None, **options: Any) -> BoundSps:
        twin = copy.deepcopy(tiny_model("llama")).to(target.model.dtype) if model is None else model
        reader = Reader(target.beside(twin, self_check=False))
        return BoundSps(Sps(model="draft", self_test=False, **options), target, reader, Vocabulary(target.vocab_size))

    return make
