"""`draftmux-rest build`: a datastore out of files. Loads the target's tokenizer, never its weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from draftmux.errors import DraftmuxError

if TYPE_CHECKING:
    from draftmux_rest.build import Corpus
    from draftmux_rest.datastore import Manifest


class Commands(click.Group):
    """The command group, with errors that are meant for the user shown as one message instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except DraftmuxError as error:
            raise click.ClickException(str(error)) from error
        except MemoryError as error:
            raise click.ClickException("not enough memory; build from fewer files") from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="draftmux-rest", prog_name="draftmux-rest")
def main() -> None:
    """Datastores for the drafter `rest` of draftmux."""


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES_OR_FOLDERS...")
@click.option(
    "--target", required=True, metavar="SOURCE", help="The pipeline's models.target.source: name, hub id, folder."
)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
@click.option("--glob", "globs", multiple=True, default=["*"], show_default=True, help="Names to take from folders.")
@click.option("--field", "fields", multiple=True, default=["text"], show_default=True, help="JSON Lines keys of texts.")
@click.option("--chat-field", "chat_fields", multiple=True, help="JSON Lines keys of chats, lists of {role, content}.")
@click.option(
    "--license", default="not stated", show_default=True, metavar="TEXT", help="Licence of the texts, kept along."
)
@click.option("--force", is_flag=True, help="Replace the datastore in DIR.")
def build(paths: tuple[Path, ...], target: str, out: Path, globs: tuple[str, ...], **options: Any) -> None:
    """Build a datastore from text files (one document each) and JSON Lines files (one document a line)."""
    from draftmux_rest.build import Corpus
    from draftmux_rest.texts import Fields, Skipped, find_files

    out, skipped = out.resolve(), Skipped()
    files = find_files(paths, globs, out, skipped)
    corpus = Corpus(_tokenizer(target), Fields(options["fields"], options["chat_fields"]), skipped)
    try:
        manifest = _build(corpus, files, out, target, options)
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written: {error.strerror or error}; nothing was left") from error
    _summarise(out, manifest, corpus)


def _tokenizer(target: str) -> Any:
    from draftmux.models.load import load_tokenizer
    from draftmux.models.source import ModelSpec

    return load_tokenizer(ModelSpec(source=target))


def _build(corpus: Corpus, files: list[Path], out: Path, target: str, options: dict[str, Any]) -> Manifest:
    from draftmux_rest.build import appearing, write

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tokens]:,} tokens"))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    with appearing(out, force=options["force"]) as folder, bar:
        task = bar.add_task("tokenising", total=len(files), tokens=0)
        for file in files:
            corpus.add(file)
            bar.update(task, advance=1, tokens=corpus.length)
        bar.add_task("sorting and writing", total=None, tokens=corpus.length)
        return write(folder, corpus, target, options["license"])


def _summarise(out: Path, manifest: Manifest, corpus: Corpus) -> None:
    for reason in corpus.skipped.first:
        click.echo(f"skipped {reason}", err=True)
    if corpus.skipped.count > len(corpus.skipped.first):
        click.echo(f"… {corpus.skipped.count} files or lines skipped in all", err=True)
    click.echo(
        f"{out}: {manifest.tokens - manifest.documents:,} tokens in {manifest.documents:,} documents "
        f"from {len(manifest.sources):,} files; {manifest.skipped:,} skipped"
    )
