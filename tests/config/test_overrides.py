"""`--set`: what a path may be."""

from __future__ import annotations

import pytest

from draftmux.config.faults import Faults, Place
from draftmux.config.nodes import Mapping, plain
from draftmux.config.overrides import apply_overrides
from draftmux.config.reader import MAX_DEPTH

EMPTY = Mapping({}, Place("f"))


def test_mappings_on_the_way_are_made() -> None:
    root = apply_overrides(EMPTY, [".".join("a" * MAX_DEPTH) + "=1"], faults := Faults())
    assert not faults
    depth, value = 0, plain(root)
    while isinstance(value, dict):
        depth, value = depth + 1, value["a"]
    assert (depth, value) == (MAX_DEPTH, 1)


@pytest.mark.parametrize("parts", [MAX_DEPTH + 1, 100_000])
def test_a_path_has_an_end(parts: int) -> None:
    root = apply_overrides(EMPTY, [".".join("a" * parts) + "=1", "b=2"], faults := Faults())
    assert plain(root) == {"b": 2}
    [fault] = faults.sentences()
    assert fault.endswith(f": the path has {parts} parts; it may have {MAX_DEPTH}")
    assert len(fault) < 200  # the override itself is cut in the message
