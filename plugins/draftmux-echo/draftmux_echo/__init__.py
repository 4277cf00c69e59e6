"""What the package publishes. Every draftmux command imports this: keep it light."""

from draftmux.hookspecs import Register, hookimpl

draftmux_api = 1  # the plugin interface that this package was written for


@hookimpl
def register_drafters(register: Register) -> None:
    """Publish the drafter: the name that pipelines use, its class, a line of help."""
    register(
        "echo",
        "draftmux_echo.drafter:Echo",
        "guess that the last few tokens come again",
    )
