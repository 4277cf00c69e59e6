"""Entry point. Commands are imported when they are called, and import torch only when they load a model."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

import draftmux
from draftmux.backends.parallel.ranks import one_voice
from draftmux.errors import DraftmuxError

COMMANDS = {
    "demo": "draftmux.cli.demo:demo",
    "run": "draftmux.cli.run:run",
    "check": "draftmux.cli.check:check",
    "plugins": "draftmux.cli.plugins:plugins",
    "bench": "draftmux.cli.bench:bench",
    "train": "draftmux.cli.train:train",
    "schema": "draftmux.cli.schema:schema",
    "new-plugin": "draftmux.cli.new_plugin:new_plugin",
}


class Commands(click.Group):
    """The command group: lazy, and with draftmux's own errors shown as one message instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DraftmuxError as error:
            raise click.ClickException(str(error)) from error

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run from the command line. What click prints itself, such as help, may meet a full disk as well."""
        try:
            with one_voice():
                return super().main(*args, **extra)
        except OSError:
            from draftmux.cli.output import write

            try:
                write("\n")
            except click.ClickException as error:
                error.show()
                sys.exit(error.exit_code)
            raise  # standard output is well, so this came from elsewhere


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(draftmux.__version__, prog_name="draftmux")
@click.option("--no-plugins", is_flag=True, help="Leave every installed plugin package alone; use draftmux's own.")
@click.pass_context
def main(ctx: click.Context, no_plugins: bool) -> None:
    """Speculative decoding with pluggable drafters, routers and verifiers, composed in YAML."""
    from draftmux import plugins

    if no_plugins:
        ctx.with_resource(plugins.no_plugins())
    elif os.environ.get(plugins.DISABLE) and ctx.invoked_subcommand != "plugins":  # which lists them itself
        for warning in plugins.unknown_disabled():
            click.echo(f"Warning: {warning}", err=True)
