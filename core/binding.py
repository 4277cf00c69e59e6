"""From plugins with options to plugins at work: what they need of the target, and who is bound after whom."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve

from draftmux.config.classes import option_fields
from draftmux.engine.affordable import MOST, affordable_nodes
from draftmux.engine.guard import Guard
from draftmux.engine.step import Parts
from draftmux.errors import DraftmuxError, PluginError, from_outside
from draftmux.protocols import Drafter, Resources, Router, Verifier, lacking
from draftmux.types import AUTO, UNLIMITED, Budget, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmux.config.spec import PipelineSpec, PluginSpec
    from draftmux.protocols import BoundBackend
    from draftmux.types import Tap


def routable(spec: PipelineSpec) -> tuple[str, ...]:
    """Drafters that the router can choose."""
    names: tuple[str, ...] | None = spec.router.plugin.uses()
    return tuple(spec.drafters) if names is None else names


def reachable(spec: PipelineSpec) -> set[str]:
    """Drafters that the router can choose, and those they are made of."""
    queue = list(routable(spec))
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += spec.drafters[name].plugin.uses()
    return found


def wanted_taps(spec: PipelineSpec) -> tuple[Tap, ...]:
    """Every tap that the router, the verifier or a reachable drafter needs, sorted."""
    return tuple(sorted({tap for plugin in _users(spec) for tap in plugin.needs.taps}))


def _users(spec: PipelineSpec) -> list[Any]:
    """The router and the drafters it can reach, and the verifier, if it says what it needs."""
    verifier = [spec.verifier.plugin] if hasattr(spec.verifier.plugin, "needs") else []
    return [spec.router.plugin, *(spec.drafters[name].plugin for name in sorted(reachable(spec))), *verifier]


def shareable(spec: PipelineSpec, lender: PipelineSpec) -> bool:
    """Whether `spec` can use the target that was loaded for `lender`: the same one, with all taps it needs."""
    same = (spec.backend.use, spec.backend.options) == (lender.backend.use, lender.backend.options)
    same = same and spec.models.get("target") == lender.models.get("target")
    return same and set(wanted_taps(spec)) <= set(wanted_taps(lender))


def fetch(spec: PipelineSpec) -> None:
    """Let plugins download what their `needs` have to know; PluginError when one fails at it."""
    for plugin in _users(spec):
        with _set_up(type(plugin).__name__):
            getattr(plugin, "fetch", lambda: None)()


def bind_backend(spec: PipelineSpec) -> BoundBackend:
    """Load the target with the taps that the pipeline needs; ModelError when it cannot be had."""
    backend: BoundBackend = spec.backend.plugin.bind(spec.models.get("target"), wanted_taps(spec))
    return backend


def bind_parts(spec: PipelineSpec, backend: BoundBackend, lender: Parts | None = None) -> Parts:
    """Bind drafters, router and verifier; PluginError when one of them cannot be set up.

    `lender` are the parts of another pipeline that share the backend.
    """
    lock = lender.lock if lender is not None else RLock()
    with lock:  # drafters may try themselves on the target
        resources = Resources(backend.tokenizer, backend, spec.models)
        drafters = _bind_drafters(spec, resources)
        resources = evolve(resources, drafters=drafters)
        chosen = {name: drafters[name] for name in routable(spec)}
        router, verifier = _bind(spec.router, Router, resources), _bind(spec.verifier, Verifier, resources)
        _check_readings(spec, router)
        parts = Parts(backend, MappingProxyType(chosen), router, verifier, Guard(spec.on_plugin_error), lock)
        _warm_up(backend, _most_nodes(spec.router.plugin, backend) if chosen else 0)
    return parts


def _check_readings(spec: PipelineSpec, router: Any) -> None:
    """PluginError when the bound router reads what is no reading, or a state that nobody tapped."""
    taps = wanted_taps(spec)
    with _set_up(f"'{spec.router.name}' (use: {spec.router.use})"):
        for reading in router.needs.readings:
            if not isinstance(reading, Reading) or reading.tap not in taps:
                raise ValueError(
                    f"needs.readings holds {reading!r}; each must be a draftmux Reading of a tap that `needs.taps` "
                    f"named before the router was bound ({', '.join(map(str, taps)) or 'there were none'})"
                )


def _warm_up(backend: BoundBackend, nodes: int) -> None:
    """Let a backend that compiles or captures its passes do so now, so that no request pays for it."""
    warm_up = getattr(backend, "warm_up", None)
    if warm_up is not None:
        warm_up(nodes)


def _most_nodes(router: Any, backend: BoundBackend) -> int:
    """Nodes of the largest draft that the router's budgets allow. Where one follows costs, they are measured now."""
    budgets = list(_budgets(router)) or [Budget()]
    open_nodes = affordable_nodes(backend.cost) if any(b.max_nodes >= AUTO for b in budgets) else 0
    sizes = {AUTO: MOST, UNLIMITED: open_nodes}
    return max(min(sizes.get(budget.max_nodes, budget.max_nodes), MOST) for budget in budgets)


def _budgets(held: Any) -> Iterator[Budget]:
    """Those among the options of a router, of what it is made of, and of routers within it."""
    if isinstance(held, Budget):
        yield held
    elif isinstance(held, (list, tuple)):
        yield from (budget for each in held for budget in _budgets(each))
    elif attrs.has(type(held)):
        yield from (budget for o in option_fields(type(held)) for budget in _budgets(getattr(held, o.name)))


def _bind_drafters(spec: PipelineSpec, resources: Resources) -> dict[str, Any]:
    """In order of use: a drafter made of others is bound after them."""
    bound: dict[str, Any] = {}

    def bind(name: str) -> None:
        if name not in bound:
            for part in spec.drafters[name].plugin.uses():
                bind(part)
            bound[name] = _bind(spec.drafters[name], Drafter, evolve(resources, drafters=dict(bound)))

    wanted = reachable(spec)
    for name in spec.drafters:
        if name in wanted:
            bind(name)
    return bound


def _bind(plugin: PluginSpec, protocol: type, resources: Resources) -> Any:
    name = f"'{plugin.name}' (use: {plugin.use})"
    with _set_up(name):
        bound = plugin.plugin.bind(resources)
    if missing := lacking(bound, protocol):
        raise PluginError(
            f"{name}: its `bind` returned a {type(bound).__name__}, which is no {protocol.__name__}: it lacks "
            f"{', '.join(missing)}; return a plugin that is ready, `self` for one"
        )
    return bound


@contextmanager
def _set_up(name: str) -> Iterator[None]:
    """Around what a plugin does before it works."""
    try:
        yield
    except DraftmuxError:
        raise
    except BaseException as error:  # SystemExit and panics of native extensions too
        if from_outside(error):
            raise
        raise PluginError(f"{name} could not be set up:\n{traceback.format_exc()}") from error
