"""What `new-plugin` writes installs, is found, is used and passes its own test; what it cannot write, it says."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from draftmux.cli.main import main
from draftmux.config.load import parse_pipeline
from draftmux.plugins import GROUP, discover, registry
from draftmux.scaffold.package import HELP, MAX_NAME, Package, name_fault

if TYPE_CHECKING:
    from draftmux.registry import Registry

ROOT = Path(__file__).parents[2]
KINDS = list(HELP)
RIGHT = {"drafter": "[tokens[-self.width :].tolist()]", "router": "names else None", "verifier": "tuple(path), token"}
WRONG = {
    "drafter": "tokens[-self.width :].tolist()",
    "router": 'names else "nobody"',
    "verifier": "tuple(path), token + 1",
}

Command = Callable[..., Result]


def python(*arguments: str | Path, path: Path | None = None, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python, without the user's settings for pip and pytest."""
    offline = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}
    environment = os.environ | offline | {"PYTHONPATH": str(path or ""), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one new package of each kind."""
    folder = tmp_path_factory.mktemp("written")
    for kind in KINDS:
        arguments = ["new-plugin", kind, f"hello-{kind}", "--out", str(folder)]
        result = CliRunner(catch_exceptions=False).invoke(main, arguments)
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def site(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as pip installs them."""
    copies, target = tmp_path_factory.mktemp("copies"), tmp_path_factory.mktemp("site")
    folders = [shutil.copytree(folder, copies / folder.name) for folder in written.iterdir()]
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--target", target, *folders]
    done = python("-W", "ignore", "-m", "pip", "install", *options, cwd=copies)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def found(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """What discovery finds in the installed packages; pipelines can name it."""
    monkeypatch.syspath_prepend(site)
    published = discover(
        point for package in distributions(path=[str(site)]) for point in package.entry_points.select(group=GROUP)
    )
    for key, entries in published.entries.items():
        monkeypatch.setitem(registry().entries, key, entries)
    yield published
    for name in [name for name in sys.modules if name.startswith("draftmux_hello")]:
        del sys.modules[name]


def test_everything_written_is_told_and_so_are_the_next_commands(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "a folder"
    out.mkdir()
    told = command("new-plugin", "router", "my-own", "--out", str(out)).stdout.splitlines()
    [folder] = out.iterdir()
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert told[0] == f"{out}/draftmux-my-own/"
    assert {line.strip() for line in told[1 : told.index("")]} == files
    assert files >= {"pyproject.toml", "draftmux_my_own/router.py", "tests/test_my_own.py"}
    assert told[-4:] == ["Next:", f"    cd '{folder}'", '    pip install -e ".[test]"', "    pytest"]


def test_the_folder_is_made_where_one_stands_and_readable_as_others_are(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside").mkdir()
    assert "    cd draftmux-hello\n" in command("new-plugin", "drafter", "hello").stdout
    assert (tmp_path / "draftmux-hello").stat().st_mode == (tmp_path / "beside").stat().st_mode


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_installed_with_its_types_and_found(kind: str, site: Path, found: Registry) -> None:
    assert found.broken == []
    entry = found.find(kind, f"hello-{kind}")
    assert (entry.package, entry.version, entry.help) == (f"draftmux-hello-{kind}", "0.1.0", HELP[kind])
    assert entry.load().__name__ == f"Hello{kind.capitalize()}"
    assert (site / f"draftmux_hello_{kind}" / "py.typed").is_file()


@pytest.mark.parametrize("kind", KINDS)
def test_its_example_is_a_sound_pipeline_that_uses_it(kind: str, written: Path, found: Registry) -> None:
    path = written / f"draftmux-hello-{kind}" / "example.yaml"
    spec = parse_pipeline(path.read_text(), str(path))
    used = {"drafter": next(iter(spec.drafters.values())), "router": spec.router, "verifier": spec.verifier}
    assert used[kind].use == f"hello-{kind}"
    assert spec.models["target"].source == "smollm2"


@pytest.mark.slow
def test_each_passes_its_own_test_and_a_faulty_one_does_not(written: Path, tmp_path: Path) -> None:
    """In one process: a package of each kind, and one whose plugin returns what it must not."""
    modules = [str(folder) for folder in written.iterdir()]
    for kind in KINDS:
        folder = tmp_path / f"draftmux-faulty-{kind}"
        for path, text in Package(kind, f"faulty-{kind}").files().items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text.replace(RIGHT[kind], WRONG[kind]) if path.endswith(f"{kind}.py") else text)
        modules.append(str(folder))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {' '.join(modules)}\nfilterwarnings = error\n")
    options = ["-p", "no:cacheprovider", "--import-mode=importlib", "-rA", "--tb=no", "-c", tmp_path / "pytest.ini"]
    done = python("-m", "pytest", *options, *modules, cwd=tmp_path)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) .*/test_(\w+)\.py", done.stdout, re.MULTILINE)
    wanted = [("PASSED", f"hello_{kind}") for kind in KINDS] + [("FAILED", f"faulty_{kind}") for kind in KINDS]
    assert sorted(outcomes) == sorted(wanted), done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("ruff", path=Path(sys.executable).parent) is None, reason="needs ruff")
def test_the_code_is_clean_without_any_settings(written: Path) -> None:
    for folder in written.iterdir():
        for options in (["check"], ["format", "--check"]):
            done = python("-m", "ruff", *options, "--isolated", "--no-cache", ".", cwd=folder)
            assert done.returncode == 0, done.stdout


def test_neither_torch_nor_transformers_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from draftmux.cli.main import main; main(['new-plugin', 'verifier', 'x'], standalone_mode=False); "
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert python("-c", code, cwd=tmp_path).returncode == 0


TEMPLATES = " ".join(path.read_text() for path in (ROOT / "core" / "scaffold" / "templates").iterdir())
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-"
HYPHENATED = sorted({re.sub(r"(?<=[a-z])(?=[A-Z])", "-", w).lower() for w in re.findall(r"[A-Za-z]+", TEMPLATES)})
NAMES = (
    st.sampled_from([*HYPHENATED, "none", "true", "false", "null", "class", "test", "test-drive", "json", "on", "off"])
    | st.text(LETTERS, min_size=1, max_size=MAX_NAME + 1)
).filter(lambda name: name_fault(name) is None)


@settings(max_examples=120)
@given(kind=st.sampled_from(KINDS), name=NAMES)
def test_any_name_that_is_allowed_gives_sound_files(kind: str, name: str) -> None:
    files = Package(kind, name).files()
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["entry-points"][GROUP] == {name: Package(kind, name).module}
    [test] = [text for path, text in files.items() if path.startswith("tests/")]
    [(module, class_name)] = re.findall(r"^from (draftmux_\w+\.\w+) import (\w+)$", test, re.MULTILINE)
    code = files[module.replace(".", "/") + ".py"]
    space: dict[str, object] = {"__name__": module}
    exec(compile(code, module, "exec", dont_inherit=True), space)
    plugin = space[class_name]
    assert isinstance(plugin, type) and plugin() is not None and plugin.__module__ == module
    assert not class_name.startswith("Test")
    for path, text in files.items():
        assert not path.endswith(".py") or ast.parse(text)
    pipeline = YAML(typ="safe").load(files["example.yaml"])
    used = [*pipeline["drafters"].values(), pipeline.get("router", {}), pipeline.get("verifier", {})]
    assert name in [part.get("use") for part in used]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "'' is no plugin name: lower-case letters and digits, a letter first, single hyphens between"),
        ("Hello World", "did you mean 'hello-world'?"),
        ("my_drafter", "did you mean 'my-drafter'?"),
        ("3d", "a letter first"),
        ("a--b", "did you mean 'a-b'?"),
        ("a-", "did you mean 'a'?"),
        ("../up", "did you mean 'up'?"),
        ("..", "'..' is no plugin name"),
        ("/tmp/x", "no plugin name"),
        ("a/b", "no plugin name"),
        ("a\\b", "no plugin name"),
        ("a\nb", "'a\\nb' is no plugin name"),
        ("a\n", "'a\\n' is no plugin name"),
        ("a\x00b", "no plugin name"),
        ("\x1b[31mred", "'\\x1b[31mred' is no plugin name"),
        ("écho", "'écho' is no plugin name"),
        ("٣", "no plugin name"),
        ("\udcff", "'\\udcff' is no plugin name"),
        ("{{ 7 * 7 }}", "no plugin name"),
        ("null", "'null' is a value in YAML"),
        ("draftmux-echo", "did you mean 'echo'?"),
        ("x" * 300, "a name has at most 40 characters, not 300"),
    ],
)
def test_a_name_that_cannot_be_is_refused_in_one_line(
    name: str, message: str, command: Command, tmp_path: Path
) -> None:
    result = command("new-plugin", "drafter", "--out", str(tmp_path), "--", name, code=1)
    assert result.stdout == "" and message in result.stderr and len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_is_a_usage_error(command: Command) -> None:
    assert "'drafter', 'router', 'verifier'" in command("new-plugin", "backend", "x", code=2).stderr


@pytest.mark.parametrize(("kind", "name"), [("drafter", "pld"), ("router", "fixed"), ("verifier", "exact-match")])
def test_a_name_that_is_registered_is_refused(kind: str, name: str, command: Command, tmp_path: Path) -> None:
    result = command("new-plugin", kind, name, "--out", str(tmp_path), code=1)
    assert result.stderr.startswith(f"Error: {kind} '{name}' exists already, in package draftmux 0.1.0; ")
    assert list(tmp_path.iterdir()) == []
    others = [other for other in KINDS if other != kind]
    for other in others:  # one name may stand for plugins of several kinds
        command("new-plugin", other, name, "--out", str(tmp_path))
        shutil.rmtree(tmp_path / f"draftmux-{name}")


def test_a_package_that_is_installed_is_not_replaced(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "draftmux_taken-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: draftmux-taken\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(info.parent)
    result = command("new-plugin", "drafter", "taken", "--out", str(tmp_path), code=1)
    assert result.stderr.startswith("Error: package draftmux-taken 1.2 is installed already, ")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("what", ["folder", "empty folder", "file", "dangling link"])
def test_what_is_in_the_way_stays_as_it_is(what: str, command: Command, tmp_path: Path) -> None:
    place = tmp_path / "draftmux-hello"
    match what:
        case "folder":
            place.mkdir()
            (place / "mine.txt").write_text("mine")
        case "empty folder":
            place.mkdir()
        case "file":
            place.write_text("mine")
        case "dangling link":
            place.symlink_to(tmp_path / "nowhere")
    before = place.lstat()
    result = command("new-plugin", "drafter", "hello", "--out", str(tmp_path), code=1)
    assert result.stderr == f"Error: {place} exists already; remove it, or choose another name or --out\n"
    assert place.lstat() == before and [path.name for path in tmp_path.iterdir()] == [place.name]


@pytest.mark.parametrize("stage", ["mkdir", "write_text", "rename"])
def test_an_error_of_the_disk_leaves_nothing_behind(
    stage: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    real = getattr(Path, stage)

    def full(path: Path, *arguments: object, **options: object) -> object:
        calls.append(path)
        if len(calls) == (1 if stage == "rename" else 3):
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, stage, full)
    result = command("new-plugin", "drafter", "hello", "--out", str(tmp_path), code=1)
    assert result.stderr == f"Error: cannot write {tmp_path / 'draftmux-hello'}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is read-only for an administrator")
def test_a_read_only_folder_is_said_to_be_one(command: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        result = command("new-plugin", "drafter", "hello", "--out", str(tmp_path), code=1)
    finally:
        tmp_path.chmod(0o755)
    assert result.stderr == f"Error: cannot write {tmp_path / 'draftmux-hello'}: Permission denied\n"


@pytest.mark.parametrize("kind_of_place", ["nowhere", "file"])
def test_out_must_be_a_folder(kind_of_place: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = command("new-plugin", "drafter", "hello", "--out", str(tmp_path / kind_of_place), code=2)
    assert "--out" in result.stderr and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_echo_package_is_what_the_command_writes_and_the_edits_of_the_tutorial() -> None:
    folder = ROOT / "plugins" / "draftmux-echo"
    edited = {"pyproject.toml", "draftmux_echo/drafter.py", "tests/test_echo.py"}
    for path, text in Package("drafter", "echo").files().items():
        assert ((folder / path).read_text(encoding="utf-8") != text) is (path in edited), path


@pytest.mark.parametrize(("kind", "name"), [("router", "patience"), ("verifier", "near-best")])
def test_pages_show_packages_as_the_command_writes_them(kind: str, name: str) -> None:
    page = (ROOT / "docs" / "how-to" / f"write-a-{kind}.md").read_text(encoding="utf-8")
    package = Package(kind, name)
    shown = dict(re.findall(rf"^```\w+ file={package.title}/(\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    [line] = re.findall(r'^description = "A \w+ for draftmux: (.+)"$', shown["pyproject.toml"], re.MULTILINE)
    written = {path: text.replace(HELP[kind], line) for path, text in package.files().items()}
    assert shown.keys() == {"pyproject.toml", f"{package.module}/__init__.py", f"{package.module}/{kind}.py"}
    assert [path for path in shown if shown[path] != written[path]] == [f"{package.module}/{kind}.py"]
    assert f"draftmux new-plugin {kind} {name}\n" in page
