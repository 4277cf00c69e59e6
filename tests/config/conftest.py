"""A registry of plugins that exist for these tests only, one for each way in which a plugin can matter to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from attrs import define, field, frozen

import draftmux.plugins
from draftmux.drafting import TokenDrafter
from draftmux.options import option
from draftmux.registry import BrokenPlugin, Entry, Registry
from draftmux.routing import BaseRouter
from draftmux.types import Accepts, Budget, Choice, Emits, Needs, Tap

if TYPE_CHECKING:
    from nowhere import Weights  # type: ignore[import-not-found]


class _Drafter(TokenDrafter):
    def draft(self, tokens: Any, budget: Budget) -> list[list[int]]:
        return []


@frozen
class Guess(_Drafter):
    """Options of every kind that a file can hold."""

    size: int = option("a bounded integer", default=3, minimum=1, maximum=9)
    share: float = option("a bounded number", default=0.5, minimum=0, maximum=1)
    eager: bool = option("a switch", default=False)
    label: str = option("a text", default="")
    mode: Literal["fast", "slow"] = option("a literal", default="fast")
    level: int = option("a choice", default=1, choices=(1, 2, 4))
    limit: int | None = option("an integer or null", default=None)
    mixed: float | int | list[str] = option("several kinds", default=0)
    names: list[str] = option("a list", default=[])
    pairs: list[list[int]] = option("lists of lists", default=[])
    depths: tuple[int, ...] = option("a tuple", default=())
    weights: dict[str, int] = option("a table", default={})
    bias: dict[int, float] = option("a table with integer keys", default={})
    budget: Budget = option("an attrs class", default=Budget())
    spare: Budget | None = option("an attrs class or null", default=None)
    tap: Tap | None = option("a parsed text", default=None)
    folder: Path = option("a path", default=Path())
    extra: Any = option("anything", default=None)
    _loaded: Weights | None = field(default=None, repr=False)
    counter: int = field(default=0, init=False)


@frozen
class Pair(_Drafter):
    """Rules between fields: a validator that reads another field, and one on the whole."""

    low: int = option("the smaller one", minimum=0)
    high: int = field(kw_only=True, metadata={"help": "the larger one"})

    @high.validator
    def _above(self, attribute: Any, value: int) -> None:
        if value <= self.low:
            raise ValueError(f"'high' must be above 'low' ({self.low}): {value}")

    def __attrs_post_init__(self) -> None:
        if self.low + self.high > 100:
            raise ValueError(f"'low' and 'high' must add up to at most 100: {self.low + self.high}")


@frozen
class Chain(_Drafter):
    """Gives chains; with `q` if asked to, so what it emits depends on an option."""

    q: bool = option("give q", default=False)

    @property
    def emits(self) -> Emits:  # type: ignore[override]
        return Emits(q=self.q)


@frozen
class Group(_Drafter):
    of: list[str] = option("drafters", default=[])

    def uses(self) -> tuple[str, ...]:
        return tuple(self.of)


@frozen
class Neural(_Drafter):
    model: str = option("name of a model")

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return Needs(models=(self.model,))


@define
class Rude(_Drafter):
    how: Literal["raise", "rubbish"] = option("how it misbehaves", default="raise")

    def uses(self) -> Any:
        if self.how == "raise":
            raise KeyError("gone")
        return (5,)


class MuteError(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("speechless")


@define
class Hostile(_Drafter):
    """Fails in one place, with what is no Exception or cannot be printed."""

    where: str = option("the place where it fails")
    how: Literal["exit", "mute", "unprintable", "interrupt"] = option("how it fails", default="exit")
    checked: int = field(default=0, kw_only=True, metadata={"help": "an option with a rule"})

    @checked.validator
    def _check(self, *_: Any) -> None:
        self.answer("rule")

    def __attrs_post_init__(self) -> None:
        self.answer("init")

    def answer(self, where: str) -> Any:
        if where != self.where:
            return {"needs": Needs(), "emits": Emits(), "uses": ()}.get(where)
        if self.how == "unprintable":
            return self
        raise {"exit": SystemExit(3), "mute": MuteError(), "interrupt": KeyboardInterrupt()}[self.how]

    def uses(self) -> Any:
        return self.answer("uses")

    def __iter__(self) -> Iterator[Any]:
        return iter([self])

    def __repr__(self) -> str:
        raise MuteError

    @property
    def needs(self) -> Any:
        return self.answer("needs")

    @property
    def emits(self) -> Any:
        return self.answer("emits")


class Leaving:
    """A type whose texts end the program."""

    @classmethod
    def parse(cls, text: str) -> Any:
        raise SystemExit(text)


@frozen
class Parsing(_Drafter):
    value: Leaving | None = option("a text", default=None)
    fresh: int = field(factory=lambda: sys.exit(5), kw_only=True, metadata={"help": "its default ends the program"})


@frozen
class Unnamed(_Drafter):
    """Asks for a model whose name is no text."""

    needs: ClassVar[Needs] = Needs(models=([],))  # type: ignore[arg-type]


@frozen
class Unreadable(_Drafter):
    weights: Weights = option("a type that is there for type checkers only")


@frozen
class Complex(_Drafter):
    z: complex = option("a type that no file can hold")


@frozen
class Incomplete:
    needs: ClassVar[Needs] = Needs()
    emits: ClassVar[Emits] = Emits()


@frozen
class Unfinished(TokenDrafter):
    pass


class NotAttrs(_Drafter):
    pass


@frozen
class Fixed(BaseRouter):
    drafter: str | None = option("drafter", default=None)

    def uses(self) -> tuple[str, ...]:
        return () if self.drafter is None else (self.drafter,)

    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(self.drafter)


@frozen
class Switch(BaseRouter):
    first: str = option("a drafter")
    second: str = option("another one")

    def uses(self) -> tuple[str, ...]:
        return (self.first, self.second)

    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(self.first)


@frozen
class Any_(BaseRouter):  # noqa: N801
    def choose(self, state: Any, context: Any, drafters: Any) -> Choice:
        return Choice(None)


@frozen
class Exact:
    lossless: ClassVar[bool] = True
    pathwise: ClassVar[bool] = True
    accepts: ClassVar[Accepts] = Accepts()

    def bind(self, resources: Any) -> Any:
        return self

    def accept(self, context: Any, draft: Any, scores: Any, sampler: Any) -> Any:
        raise NotImplementedError


@frozen
class Secret(Exact):
    """Does not say whether it is lossless."""

    @property
    def lossless(self) -> bool:  # type: ignore[override]
        raise SystemExit(4)


@frozen
class Lawful(Exact):
    """Lossless in law only."""

    pathwise: ClassVar[bool] = False


@frozen
class Lossy(Exact):
    lossless: ClassVar[bool] = False


@frozen
class Strict(Exact):
    """Takes only chains with q."""

    accepts: ClassVar[Accepts] = Accepts(tree=False, needs_q=True)


@frozen
class Engine:
    takes_model: ClassVar[bool] = True

    def bind(self, target: Any, taps: Any) -> Any:
        return self


@frozen
class OwnTarget(Engine):
    takes_model: ClassVar[bool] = False


CLASSES: dict[str, dict[str, type]] = {
    "drafter": {
        "guess": Guess,
        "pair": Pair,
        "chain": Chain,
        "group": Group,
        "neural": Neural,
        "rude": Rude,
        "hostile": Hostile,
        "parsing": Parsing,
        "unnamed": Unnamed,
        "unreadable": Unreadable,
        "complex": Complex,
        "incomplete": Incomplete,
        "unfinished": Unfinished,
        "not-attrs": NotAttrs,
    },
    "router": {"fixed": Fixed, "switch": Switch, "any": Any_},
    "verifier": {"exact-match": Exact, "lawful": Lawful, "lossy": Lossy, "secret": Secret, "strict": Strict},
    "backend": {"static": Engine, "transformers": Engine, "scripted": OwnTarget},
}


def fake_registry() -> Registry:
    found = Registry()
    for kind, classes in CLASSES.items():
        for name, cls in classes.items():
            found.add(Entry(kind, name, f"{__name__}:{cls.__name__}", f"the {name} {kind}", "fakes", "1.2", "fake"))
    found.add(Entry("drafter", "absent", "draftmux.nowhere:Absent", "", "gone", "0.1", "gone-point"))
    return found


@pytest.fixture(scope="module")
def fakes() -> Iterator[Registry]:
    """The registry of this file in place of the installed one."""
    registry = fake_registry()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draftmux.plugins, "registry", lambda packages=None: registry)
        yield registry


@pytest.fixture
def broken_package(fakes: Registry) -> Iterator[None]:
    """A package that failed to load is known while the test runs."""
    fakes.broken.append(BrokenPlugin("shaky", "3.0", "shaky-point", "Traceback …\nImportError: no libshaky"))
    yield
    fakes.broken.clear()
