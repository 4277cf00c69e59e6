"""`draftmux new-plugin`: a pip package with a plugin that works and a test that passes, for its author to change."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from os.path import lexists
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

import click

from draftmux.cli.output import write
from draftmux.plugins import registry
from draftmux.scaffold.package import HELP, Package, name_fault


@click.command()
@click.argument("kind", type=click.Choice(list(HELP)))
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder to make the package's folder in; default: the current one.",
)
def new_plugin(kind: str, name: str, out: Path) -> None:
    """Write a pip package draftmux-NAME with a drafter, router or verifier NAME, an example pipeline and a test."""
    if fault := name_fault(name):
        raise click.ClickException(fault)
    package = Package(kind, name)
    _refuse_taken(package)
    texts = package.files()
    folder = out / package.title
    _write(texts, folder)
    shown = click.format_filename(folder)
    listed = "\n".join([f"{shown}/", *(f"    {path}" for path in texts)])
    try:
        write(f'{listed}\n\nNext:\n    cd {quote(shown)}\n    pip install -e ".[test]"\n    pytest\n')
    except click.ClickException as error:
        raise click.ClickException(f"{shown} was written and is complete, but {error.message}") from error


def _refuse_taken(package: Package) -> None:
    """Two packages with one plugin name are useless, and pip replaces a package by one of the same name."""
    for entry in registry().entries.get((package.kind, package.name), ()):
        raise click.ClickException(
            f"{package.kind} '{package.name}' exists already, in package {entry.package} {entry.version}; "
            "choose another name"
        )
    try:
        installed = version(package.title)
    except PackageNotFoundError:
        return
    raise click.ClickException(
        f"package {package.title} {installed} is installed already, and the new one would replace it; "
        "choose another name"
    )


def _write(texts: dict[str, str], folder: Path) -> None:
    """All files or none: they are written next to their place and moved there as one folder."""
    shown = click.format_filename(folder)
    if lexists(folder):
        raise click.ClickException(f"{shown} exists already; remove it, or choose another name or --out")
    try:
        with TemporaryDirectory(prefix=".new-plugin-", dir=folder.parent) as beside:
            new = Path(beside, folder.name)
            for path, text in texts.items():
                (new / path).parent.mkdir(parents=True, exist_ok=True)
                (new / path).write_text(text, encoding="utf-8", newline="\n")
            new.rename(folder)
    except OSError as error:
        raise click.ClickException(f"cannot write {shown}: {error.strerror or error}") from error
