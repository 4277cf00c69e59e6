"""Options of the copying drafters have bounds, and everything within them is safe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmux.config.classes import class_shape
from draftmux.drafters.ngram.context_copy import ContextCopy
from draftmux.drafters.ngram.copyspec import CopySpec
from draftmux.drafters.ngram.pld import PromptLookup
from draftmux.types import Budget, Context

MakeContext = Callable[[Sequence[int]], Context]
NUMBERS = [
    (cls, field.name, field.metadata["maximum"])
    for cls in (PromptLookup, CopySpec, ContextCopy)
    for field in attrs.fields(cls)
    if field.type in ("int", "float")
]


@pytest.mark.parametrize(("cls", "name", "maximum"), NUMBERS)
def test_every_number_has_a_documented_maximum(cls: type, name: str, maximum: Any) -> None:
    more = {"max_n": maximum} if name == "min_n" else {}
    cls(**{name: maximum}, **more)
    assert class_shape(cls).schema()["properties"][name]["maximum"] == maximum <= 1024
    for above in (maximum + 1, 10**9):
        with pytest.raises(ValueError, match=f"'{name}' must be <= {maximum}: {above}"):
            cls(**{name: above}, **more)


@pytest.mark.parametrize("cls", [PromptLookup, CopySpec, ContextCopy])
@pytest.mark.parametrize("periodic", [True, False])
def test_the_largest_options_work(cls: type, periodic: bool, make_context: MakeContext) -> None:
    largest = {name: maximum for owner, name, maximum in NUMBERS if owner is cls}
    drafter, context = cls(**largest, periodic=periodic), make_context([7] * 2000)
    draft = drafter.propose_one(context, drafter.begin(context), Budget(max_nodes=50))
    assert draft.tokens.tolist() == [7] * 50


@given(growth=st.sampled_from([5e-324, sys.float_info.min, 1e-300, 1e-9, 0.1, 1024.0]), repeats=st.integers(2, 40))
def test_any_growth_gives_a_length(growth: float, repeats: int, make_context: MakeContext) -> None:
    drafter, context = PromptLookup(growth=growth, length=20, periodic=True), make_context([1, 2] * repeats)
    draft = drafter.propose_one(context, drafter.begin(context), Budget())
    assert len(draft) == min(20, int(growth * (2 * repeats - 2 + 1)))
