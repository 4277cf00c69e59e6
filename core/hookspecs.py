"""The hooks by which a package publishes its plugins, read from the entry-point group `draftmux`.

Each hook is called with `register(name, target, help)`. `target` is `"package.module:Class"`, imported only when a
pipeline uses the name, so listing plugins stays fast and one broken class takes nothing else down.

What a plugin and draftmux ask of each other has a number, `PLUGIN_API`: these hooks, the protocols, and the types that
travel between them. A change that breaks plugins written before raises it. The module that an entry point names may say
for which number it was written, `draftmux_api = 1`; a module that says nothing was written for 1.
"""

from __future__ import annotations

from typing import Protocol

import pluggy

PLUGIN_API = 1
OLDEST_PLUGIN_API = 1  # plugins written for this number still work

hookspec = pluggy.HookspecMarker("draftmux")
hookimpl = pluggy.HookimplMarker("draftmux")


class Register(Protocol):
    """Callback given to each hook. `name` is what pipelines write after `use:`, `help` one line for listings."""

    def __call__(self, name: str, target: str, help: str = "") -> None: ...


@hookspec
def register_drafters(register: Register) -> None:
    """Publish drafters: classes that follow `draftmux.protocols.Drafter`."""


@hookspec
def register_routers(register: Register) -> None:
    """Publish routers: classes that follow `draftmux.protocols.Router`."""


@hookspec
def register_verifiers(register: Register) -> None:
    """Publish verifiers: classes that follow `draftmux.protocols.Verifier`."""


@hookspec
def register_backends(register: Register) -> None:
    """Publish backends: classes that follow `draftmux.protocols.Backend`."""


@hookspec
def register_constraints(register: Register) -> None:
    """Publish constraints: classes that follow `draftmux.protocols.Constraint`."""


@hookspec
def register_models(register: Register) -> None:
    """Publish named model sources: `target` names a `draftmux.models.source.ModelSpec`, not a class."""


@hookspec
def register_tasks(register: Register) -> None:
    """Publish tasks, which say whether an answer solves its problem: classes that follow
    `draftmux.protocols.Task`."""
