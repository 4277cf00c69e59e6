"""Packages as pip would install them, in folders of their own, and the real command line over them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Package = Callable[..., Path]
Draftmux = Callable[..., subprocess.CompletedProcess[str]]
WriteFile = Callable[[str], str]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """Install a package of one module: its folder. `modules` are further modules, `points` the entry points' text."""

    def install(
        name: str, code: str, *, modules: dict[str, str] | None = None, points: str = "", version: str = "1.2"
    ) -> Path:
        folder = tmp_path_factory.mktemp(name)
        main = name.replace("-", "_")
        for module, text in {main: code, **(modules or {})}.items():
            (folder / f"{module}.py").write_text(text)
        info = folder / f"{main}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(points or f"[draftmux]\n{name}-point = {main}\n")
        return folder

    return install


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's example plugin, built and installed by pip into a folder."""
    source, target = tmp_path_factory.mktemp("source") / "echo", tmp_path_factory.mktemp("echo")
    leftovers = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "plugins" / "draftmux-echo", source, ignore=leftovers)
    offline = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--target", str(target), str(source)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options],
        env=os.environ | offline | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def draftmux(tmp_path_factory: pytest.TempPathFactory) -> Draftmux:
    """Run the installed command in an empty folder, with packages on the path. `flags` are Python's own."""
    script = shutil.which("draftmux", path=sysconfig.get_path("scripts"))
    empty = tmp_path_factory.mktemp("empty")

    def run(*arguments: str, path: Iterable[Path] = (), flags: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
        assert script, "install draftmux into this environment: pip install -e ."
        before = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(before), "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, *flags, script, *arguments]
        return subprocess.run(
            command, cwd=empty, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=60
        )

    return run


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> WriteFile:
    """Write a pipeline file with these drafters, in flow style; several of them need no more than this to be read."""

    def write(drafters: str) -> str:
        path = tmp_path_factory.mktemp("pipeline") / "pipeline.yaml"
        model = "models: {target: {source: org/name}}"
        path.write_text(f"{model}\nrouter: {{use: fixed}}\ndrafters:\n{drafters}\n")
        return str(path)

    return write
