"""`--set key.path=value`: changes a located tree before it is checked. Knows nothing of what the keys mean.

Keys and value are read as YAML would read them in the file, so `logit_bias.7=1` sets the integer key 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmux.config.faults import Faults, Place
from draftmux.config.nodes import Entry, Mapping, Node, Refused, shorten, show
from draftmux.config.reader import MAX_DEPTH, read_value, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def apply_overrides(root: Mapping, overrides: Iterable[str], faults: Faults) -> Mapping:
    """Set every `key.path=value` in turn. Mappings on the way are made; faults name the override as their place."""
    for override in overrides:
        place = Place(f"--set {shorten(override)}")
        path, equals, text = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            faults.add(place, "write key.path=value, such as generation.temperature=0.7")
            continue
        if len(keys) > MAX_DEPTH:
            faults.add(place, f"the path has {len(keys)} parts; it may have {MAX_DEPTH}")
            continue
        root = _put(root, keys, read_value(text, place, faults), place, faults)
    return root


def _put(parent: Mapping, keys: Sequence[str], value: Node, place: Place, faults: Faults) -> Mapping:
    """A copy of `parent` with `value` at the end of the path; a fault, and `parent` itself, where it is blocked."""
    key, *rest = keys
    name = resolve(key)
    old = parent.entries.get(name)
    if rest:
        below = old.node if old is not None else Mapping({}, place)
        if isinstance(below, Refused):  # its own fault is told already
            return parent
        if not isinstance(below, Mapping):
            faults.add(place, f"nothing can be set below '{key}', which is {show(below)}")
            return parent
        value = _put(below, rest, value, place, faults)
    return parent.having(name, Entry(old.place if old is not None else place, value))
