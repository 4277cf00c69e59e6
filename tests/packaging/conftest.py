"""Builds the distributions once, from a copy of what a release is made of, so that no build leftovers get in or out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "drafters", "routers", "verifiers")
FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")

Call = Callable[..., str]


@pytest.fixture(scope="session")
def call() -> Call:
    """Run Python with arguments, offline and without a user's settings; its output, or a failed test with it."""

    def run(*arguments: str | Path, cwd: Path) -> str:
        environment = os.environ | {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INDEX": "1",
            "PYTHONWARNINGS": "ignore",
        }
        environment.pop("PYTHONPATH", None)
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package folders and the files beside them, and nothing else."""
    folder = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    """The wheel, as pip builds it."""
    copy = tmp_path_factory.mktemp("wheel-build") / "draftmux"
    shutil.copytree(source, copy)
    out = tmp_path_factory.mktemp("wheel")
    call("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", out, ".", cwd=copy)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory, call: Call) -> Path:
    """The source distribution, unpacked."""
    copy = tmp_path_factory.mktemp("sdist-build") / "draftmux"
    shutil.copytree(source, copy)
    out = tmp_path_factory.mktemp("sdist")
    call("-c", "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])", out, cwd=copy)
    [archive] = out.glob("*.tar.gz")
    shutil.unpack_archive(archive, out / "unpacked", filter="data")
    [unpacked] = (out / "unpacked").iterdir()
    return unpacked
