"""Planted faults: proof that a property can fail. A property that no fault breaks says nothing when it passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

from draftmux.errors import DraftmuxError

Property = Callable[[], Any]


@frozen
class Fault:
    """`plant` puts the fault in place through a pytest MonkeyPatch; `broken` is the property that must notice."""

    plant: Callable[[Any], None]
    broken: Property

    @property
    def name(self) -> str:
        """What is wrong, in words."""
        return self.plant.__name__


@define
class Faults:
    """A list of faults, filled by decorating the functions that plant them."""

    all: list[Fault] = field(factory=list)

    def breaks(self, broken: Property) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        """Decorator: the function plants a fault that `broken` must notice."""

        def register(plant: Callable[[Any], None]) -> Callable[[Any], None]:
            self.all.append(Fault(plant, broken))
            return plant

        return register


def check_caught(fault: Fault, monkeypatch: Any) -> None:
    """The property holds, and with the fault in place it does not.

    An error that the engine raises on purpose counts as notice; any other exception is a mistake in the plant.
    """
    fault.broken()
    fault.plant(monkeypatch)
    try:
        fault.broken()
    except (AssertionError, DraftmuxError):
        return
    raise AssertionError(f"nobody notices '{fault.name}'")
