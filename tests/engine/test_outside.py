"""Signals are the user's, not a plugin's; a plugin that is not ready after `bind` is named when the pipeline loads."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from attrs import frozen

from draftmux.binding import bind_parts
from draftmux.config.spec import PipelineSpec, PluginSpec
from draftmux.drafting import SequenceDrafter
from draftmux.errors import PluginError
from draftmux.generation import Generation
from draftmux.routers.fixed import Fixed
from draftmux.testing.harness import assemble, serve
from draftmux.testing.reference import Ask
from draftmux.testing.targets import hash_law, scripted
from draftmux.types import Budget, Draft
from draftmux.verifiers.exact_match import ExactMatch


@frozen
class Calls(SequenceDrafter):
    """Calls a function instead of drafting."""

    work: Any

    def propose_one(self, context: Any, state: Any, budget: Budget) -> Draft:
        self.work()
        return Draft.empty()


def run(work: Any) -> Any:
    parts = assemble(scripted(hash_law(1, 5), 5), {"calls": Calls(work)}, policy="skip")
    return serve(parts, [Ask((1,), Generation(max_new_tokens=3))])["request"].finished


def leave(*_: Any) -> None:
    sys.exit(3)


def test_a_signal_handler_that_exits_is_obeyed_inside_a_plugin() -> None:
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(SystemExit):
            run(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_plugin_that_exits_is_at_fault() -> None:
    [fault] = run(lambda: sys.exit(3)).metrics.faults
    assert "SystemExit" in fault


@frozen
class Unready(SequenceDrafter):
    """Gives something else back when it is bound."""

    answer: Any

    def bind(self, resources: Any) -> Any:
        return self.answer()

    def propose_one(self, context: Any, state: Any, budget: Budget) -> Draft:
        return Draft.empty()


def spec(drafter: Any, router: Any) -> PipelineSpec:
    def plugin(name: str, instance: Any) -> PluginSpec:
        return PluginSpec(name, name, instance, {})

    return PipelineSpec(
        origin="p.yaml",
        models={},
        drafters={"d": plugin("d", drafter)},
        router=plugin("router", router),
        verifier=plugin("verifier", ExactMatch()),
        backend=plugin("backend", None),
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [(lambda: None, "returned a NoneType.*lacks"), (lambda: sys.exit("gone"), "could not be set up")],
)
def test_a_plugin_that_cannot_be_bound_is_named(answer: Any, said: str) -> None:
    with pytest.raises(PluginError, match=f"(?s)'d'.*{said}"):
        bind_parts(spec(Unready(answer), Fixed(drafter="d")), scripted(hash_law(1, 5), 5))


@pytest.mark.parametrize(("budget", "measured"), [(Budget(), True), (Budget(max_nodes=4), False)])
def test_an_open_budget_is_settled_before_the_first_request(budget: Budget, measured: bool) -> None:
    target = scripted(hash_law(1, 5), 5)
    asked: list[int] = []
    target.costs = type("Costs", (), {"get": lambda self, nodes, default: asked.append(nodes) or 1.0})()
    bind_parts(spec(Calls(lambda: None), Fixed(drafter="d", budget=budget)), target)
    assert bool(asked) is measured
