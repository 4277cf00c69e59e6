"""Whether the parts of a pipeline fit together: references, models, what drafts hold and what the verifier takes.

Plugins are asked through their protocol; one that fails to answer is a fault of the file like any other.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from draftmux.config.nodes import Mapping, Node, Scalar, children, shorten
from draftmux.errors import did_you_mean
from draftmux.types import Accepts, Emits, Needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from draftmux.config.faults import Catching, Faults, Place
    from draftmux.config.grammar import Part


@frozen(eq=False)
class Parts:
    """What could be built of a file: the plugins without faults, but all names that it declares.

    Names are None when their section cannot be read; then nothing is said about them. `place` is where models stand.
    """

    place: Place
    model_names: set[str] | None
    drafter_names: set[str] | None
    backend: Part | None
    drafters: dict[str, Part]
    router: Part | None
    verifier: Part | None
    lossless: bool
    uses: dict[str, tuple[str, ...]] = field(factory=dict)  # by path, filled by `check`


def check(parts: Parts, faults: Faults) -> None:
    """Add every fault in how the parts relate."""
    if parts.backend is not None and parts.model_names is not None and "target" not in parts.model_names:
        _check_target(parts.backend, parts, faults)
    users = [*parts.drafters.values(), *([parts.router] if parts.router else [])]
    for part in users:
        parts.uses[part.path] = _uses(part, parts, faults)
        _check_references(part, parts, faults)
    _check_circles(parts, faults)
    if parts.verifier is not None:
        if hasattr(parts.verifier.spec.plugin, "needs"):
            parts.uses[parts.verifier.path] = ()
            _check_references(parts.verifier, parts, faults)
        _check_lossless(parts.verifier, parts.lossless, faults)
        for drafter in _reachable(parts):
            _check_drafts(drafter, parts.verifier, faults)


def _check_target(backend: Part, parts: Parts, faults: Faults) -> None:
    if _ask(backend, "takes_model", True, faults):
        faults.add(parts.place, "models.target is missing; name the target model: models: {target: {source: …}}")


def _uses(part: Part, parts: Parts, faults: Faults) -> tuple[str, ...]:
    """Drafters that a drafter is made of, or that a router may choose: any, if it says None."""
    with _asking(part, "uses", faults):
        named = part.spec.plugin.uses()
        return tuple(parts.drafters) if named is None else _names(part, "uses", "drafter", named, faults)
    return ()


def _models(part: Part, faults: Faults) -> tuple[str, ...]:
    """Models that a plugin needs."""
    needs = _ask(part, "needs", Needs(), faults)
    with _asking(part, "needs", faults):
        return _names(part, "needs", "model", needs.models, faults)
    return ()


def _asking(part: Part, name: str, faults: Faults) -> Catching:
    """Around every question to a plugin, and around all that is done with the answer: neither is trusted."""
    return faults.catching(part.entry.place, f"{part.path}: `{name}` of {part.spec.use} failed")


def _names(part: Part, asked: str, kind: str, given: Iterable[Any], faults: Faults) -> tuple[str, ...]:
    """The names that a plugin gave; none, and a fault, if some are no text."""
    names = tuple(given)
    if all(isinstance(name, str) for name in names):
        return names
    said = shorten(repr(names))
    faults.add(part.entry.place, f"{part.path}: `{asked}` of {part.spec.use} must give {kind} names, not {said}")
    return ()


def _ask(part: Part, name: str, default: Any, faults: Faults) -> Any:
    """A declaration of a plugin; `default`, and a fault, when it fails or gives something else."""
    with _asking(part, name, faults):
        answer = getattr(part.spec.plugin, name)
        if isinstance(answer, type(default)):
            return answer
        rule = f"must be of type {type(default).__name__}, not {shorten(repr(answer))}"
        faults.add(part.entry.place, f"{part.path}: `{name}` of {part.spec.use} {rule}")
    return default


def _check_references(part: Part, parts: Parts, faults: Faults) -> None:
    for name in _unknown(parts.uses[part.path], parts.drafter_names):
        hint = did_you_mean(name, parts.drafter_names or ())
        faults.add(_mention(part, name), f"{part.path} names drafter '{name}', which is not in drafters{hint}")
    for name in _unknown(_models(part, faults), parts.model_names):
        hint = did_you_mean(name, parts.model_names or ())
        faults.add(_mention(part, name), f"{part.path} needs model '{name}', which is not in models{hint}")


def _unknown(names: tuple[str, ...], known: set[str] | None) -> list[str]:
    return [] if known is None else [name for name in names if name not in known]


def _check_circles(parts: Parts, faults: Faults) -> None:
    graph = {name: set(parts.uses[part.path]) for name, part in parts.drafters.items()}
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]  # graphlib lists a user after what it uses
            graph[circle[0]] = set()
            place = min((parts.drafters[name].entry.place for name in circle), key=lambda place: place.line or 0)
            faults.add(place, f"drafters are made of each other in a circle: {' -> '.join(circle)}; break it")
        else:
            return


def _check_lossless(verifier: Part, lossless: bool, faults: Faults) -> None:
    is_lossless = _ask(verifier, "lossless", True, faults)  # asked in any case, since `describe` relies on an answer
    if lossless and not is_lossless:
        faults.add(
            verifier.entry.place,
            f"verifier {verifier.spec.use} is lossy: its text may differ from the target's; write `lossless: false` at "
            "the top level to allow that, or use a lossless verifier such as exact-match",
        )


def _reachable(parts: Parts) -> Iterator[Part]:
    """The drafters whose drafts the verifier will see: what a merging drafter is made of shows only through it."""
    if parts.router is not None:
        named = parts.uses[parts.router.path]
        yield from (part for name, part in parts.drafters.items() if name in named)


def _check_drafts(drafter: Part, verifier: Part, faults: Faults) -> None:
    emits = _ask(drafter, "emits", Emits(), faults)
    accepts = _ask(verifier, "accepts", Accepts(), faults)
    both = f"verifier {verifier.spec.use} and {drafter.path} ({drafter.spec.use}) do not fit"
    if accepts.needs_q and not emits.q:
        faults.add(
            verifier.entry.place,
            f"{both}: the verifier needs the law q that drafted tokens were sampled from, and this drafter gives none; "
            "use a drafter that samples, or verifier exact-match",
        )
    if emits.tree and not accepts.tree:
        faults.add(
            verifier.entry.place,
            f"{both}: the verifier takes only chains, and this drafter gives trees; "
            "use a drafter of chains, or a verifier that takes trees such as exact-match",
        )


def _mention(part: Part, name: str) -> Place:
    """Where the options of a part write `name`; the part itself if they do not."""
    node = part.entry.node
    options = node.without("use") if isinstance(node, Mapping) else node
    return next(_places(options, name), part.entry.place)


def _places(node: Node, name: str) -> Iterator[Place]:
    if isinstance(node, Scalar) and node.value == name:
        yield node.place
    if isinstance(node, Mapping) and name in node.entries:
        yield node.entries[name].place
    for child in children(node):
        yield from _places(child, name)
