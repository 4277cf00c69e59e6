"""Packages as pip would install them, in folders of their own, and the real command line over them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import define

from draftmux.plugins import DISABLE, GROUP, discover

if TYPE_CHECKING:
    from draftmux.registry import Registry

ROOT = Path(__file__).parents[2]

Package = Callable[..., Path]
Draftmux = Callable[..., subprocess.CompletedProcess[str]]
WriteFile = Callable[[str], str]

# Start of a module that leaves its name behind when it is imported.
MARK = "import os\nwith open(os.environ['MARKS'], 'a') as marks:\n    marks.write(__name__ + '\\n')\n"
HOOK = "from draftmux.hookspecs import hookimpl\n\n@hookimpl\ndef register_drafters(register):\n    "
TARGET = "draftmux.drafters.ngram.pld:PromptLookup"


@define
class Marked:
    """Packages that leave a mark when they are imported, and the environment that tells them where."""

    path: list[Path]
    env: dict[str, str]

    def imported(self) -> list[str]:
        """Names of the modules that were imported since the last call."""
        file = Path(self.env["MARKS"])
        found = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return sorted(found)


@pytest.fixture
def marked(package: Package, tmp_path: Path) -> Marked:
    """Two packages: mark-one publishes the drafter `one`; mark-two publishes `left` and `right` at a point each."""
    one = package("mark-one", MARK + HOOK + f"register('one', '{TARGET}')\n")
    sides = {f"mark_{side}": MARK + HOOK + f"register('{side}', '{TARGET}')\n" for side in ("left", "right")}
    two = package("mark-two", MARK, modules=sides, points="[draftmux]\nleft-point = mark_left\nright = mark_right\n")
    return Marked([one, two], {"MARKS": str(tmp_path / "marks")})


@pytest.fixture(params=["draftmux", "DraftMux"])
def spoof(request: pytest.FixtureRequest, package: Package, tmp_path: Path) -> Marked:
    """A package that calls itself draftmux, and leaves a mark when its module is imported."""
    code = MARK + HOOK + f"register('spoof', '{TARGET}')\n"
    folder = package(request.param, "", modules={"pretender": code}, points="[draftmux]\nspoof = pretender\n")
    (folder / f"{request.param}.py").unlink()
    return Marked([folder], {"MARKS": str(tmp_path / "marks")})


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
    """Run the installed command in an empty folder, with packages on the path.

    `flags` are Python's own, `env` environment variables; nothing is disabled that a test does not disable itself.
    """
    script = shutil.which("draftmux", path=sysconfig.get_path("scripts"))
    empty = tmp_path_factory.mktemp("empty")

    def run(
        *arguments: str, path: Iterable[Path] = (), flags: Iterable[str] = (), env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        assert script, "install draftmux into this environment: pip install -e ."
        before = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(before), "PYTHONIOENCODING": "utf-8", DISABLE: ""}
        environment = os.environ | own | (env or {})
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


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Registry]]:
    """What these folders' packages publish, discovered in this process."""
    looked_at: list[str] = []

    def discovered(*folders: Path) -> Registry:
        looked_at.extend(map(str, folders))
        for folder in folders:
            monkeypatch.syspath_prepend(folder)
        packages = distributions(path=list(map(str, folders)))
        return discover([point for package in packages for point in package.entry_points.select(group=GROUP)])

    yield discovered
    for name, module in list(sys.modules.items()):
        if str(Path(vars(module).get("__file__") or "/").parent) in looked_at:
            del sys.modules[name]
