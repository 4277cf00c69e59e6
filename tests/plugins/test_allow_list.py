"""A file may list the packages that it uses. Others are not imported for it, and a message says what to add."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmux import plugins
from draftmux.config.load import parse_pipeline
from draftmux.errors import PipelineError
from draftmux.models import locate
from draftmux.models.source import ModelSpec
from draftmux.plugins import DISABLE

Run = subprocess.CompletedProcess[str]

HOOK = "from draftmux.hookspecs import hookimpl\n\n@hookimpl\ndef register_drafters(register):\n    "

READ = """\
import sys
from draftmux.config.load import read_pipeline
from draftmux.errors import PipelineError
try:
    spec = read_pipeline(sys.argv[1], sys.argv[2:])
    print(spec.plugins, *sorted(f'{name}:{part.use}' for name, part in spec.drafters.items()))
except PipelineError as error:
    print(error)
"""


@pytest.fixture
def read(marked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Read a file whose drafters stand from line 4 on, in a process that has the marked packages: spec, or faults."""

    def run(packages: str, drafters: str, *overrides: str, env: dict[str, str] | None = None, code: str = READ) -> str:
        path = tmp_path / "p.yaml"
        listed = f"plugins: {packages}\n" if packages else "\n"
        path.write_text(
            f"models: {{target: {{source: org/name}}}}\n{listed}drafters:\n{drafters}\nrouter: {{use: fixed}}\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, marked.path)), prepend=os.pathsep)
        for name, value in (marked.env | {DISABLE: ""} | (env or {})).items():
            monkeypatch.setenv(name, value)
        command = [sys.executable, "-c", code, str(path), *overrides]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.replace(f"{tmp_path}/", "").strip()

    return run


REQUEST = """\
import sys
from draftmux.config.load import describe, read_pipeline
from draftmux.pipeline import override
spec = read_pipeline(sys.argv[1])
spec = __import__("attrs").evolve(spec, generation=override(spec.generation, {"constraint": RULE}, spec.plugins))
print(*(row.options["constraint"] for row in describe(spec) if row.part == "generation"))
"""


def test_a_requests_settings_import_nobody_else(read: Callable[..., str], marked: Any) -> None:
    rule = {"use": "regex", "pattern": "a"}
    assert read("[mark-one]", "  c: {use: pld}", code=REQUEST.replace("RULE", str(rule))) == str(rule)
    assert marked.imported() == ["mark_one"]


EVERYTHING = ["mark_left", "mark_one", "mark_right"]


def test_without_a_list_every_package_may_be_used(read: Callable[..., str], marked: Any) -> None:
    for listed in ("", "null"):
        assert read(listed, "  a: {use: one}\n  b: {use: left}\n  c: {use: pld}") == "None a:one b:left c:pld"
        assert marked.imported() == EVERYTHING


@pytest.mark.parametrize(
    ("listed", "imported"),
    [("[Mark_One]", ["mark_one"]), ("[mark-one, draftmux, mark.one]", ["mark_one"]), ("[mark--two]", EVERYTHING[::2])],
)
def test_only_listed_packages_are_imported(
    listed: str, imported: list[str], read: Callable[..., str], marked: Any
) -> None:
    use = "one" if "mark_one" in imported else "left"
    assert read(listed, f"  a: {{use: {use}}}\n  c: {{use: pld}}").endswith(f" a:{use} c:pld")
    assert marked.imported() == imported


def test_a_package_that_is_not_listed_is_named_as_what_to_add(read: Callable[..., str], marked: Any) -> None:
    told = read("[mark-one]", "  a: {use: one}\n  b: {use: left}\n  c: {use: pld}").splitlines()
    assert told[0].startswith("p.yaml:5: unknown drafter 'left'; there is ")
    two = [f"mark-two 1.2 (entry point {point}): " for point in ("left-point", "right")]
    for point in two:
        assert f"{point}the file's list 'plugins' leaves it out; add 'mark-two' to it" in told
    assert not any(line.startswith(("mark-one", "p.yaml:4", "p.yaml:6")) for line in told)
    assert marked.imported() == ["mark_one"]
    assert read("[mark-one, mark-two]", "  a: {use: one}\n  b: {use: left}").endswith(" a:one b:left")


def test_an_empty_list_leaves_draftmux_alone(read: Callable[..., str], marked: Any) -> None:
    assert read("[]", "  c: {use: pld}") == "[] c:pld"
    assert "add 'mark-one' to it" in read("[]", "  c: {use: one}")
    assert marked.imported() == []


@pytest.mark.parametrize("listed", ["[]", "[draftmux]"])
def test_a_package_that_calls_itself_draftmux_is_not_in_any_list(
    listed: str, pipeline: Callable[[str], str], draftmux: Callable[..., Run], spoof: Any
) -> None:
    done = draftmux(
        "check", pipeline("  c: {use: spoof}"), "--set", f"plugins={listed}", path=spoof.path, env=spoof.env
    )
    assert done.returncode == 1 and "unknown drafter 'spoof'" in done.stdout
    assert "(entry point spoof): the file's list 'plugins' cannot name it" in done.stdout
    assert spoof.imported() == []


def test_a_clash_with_a_package_outside_the_list_is_none(
    read: Callable[..., str], marked: Any, package: Callable[..., Path]
) -> None:
    marked.path.append(package("clasher", HOOK + "register('pld', 'a:B'); register('one', 'a:B')\n"))
    told = read("", "  a: {use: one}\n  c: {use: pld}")
    assert "p.yaml:4: drafter 'one' is published by " in told and "p.yaml:5: drafter 'pld' is published by " in told
    assert read("[mark-one]", "  a: {use: one}\n  c: {use: pld}") == "['mark-one'] a:one c:pld"


def test_a_broken_package_outside_the_list_is_not_touched(
    read: Callable[..., str], marked: Any, package: Callable[..., Path]
) -> None:
    marked.path.append(package("breaks", "raise OSError('broken')\n"))
    assert "OSError: broken" in read("", "  a: {use: nobody}")
    told = read("[mark-one]", "  a: {use: nobody}")
    assert "OSError" not in told and "add 'breaks' to it" in told
    assert "OSError: broken" in read("[breaks]", "  a: {use: nobody}")


def test_a_listed_package_that_is_disabled_is_named_with_the_way_to_have_it(
    read: Callable[..., str], marked: Any
) -> None:
    told = read("[mark-one]", "  a: {use: one}", env={DISABLE: "mark-one"})
    assert "p.yaml:4: unknown drafter 'one'" in told and "take 'mark-one' out of it" in told
    assert "plugins lists" not in told
    assert read("[mark-one]", "  a: {use: pld}", env={DISABLE: "all"}) == "['mark-one'] a:pld"
    assert marked.imported() == []


def test_an_override_can_set_the_list(read: Callable[..., str], marked: Any) -> None:
    assert read("[mark-one]", "  a: {use: pld}", "plugins=[]") == "[] a:pld"
    assert marked.imported() == []
    told = read("[]", "  a: {use: pld}", "plugins=[mark-oen]")
    assert told.startswith("--set plugins=[mark-oen]: plugins lists 'mark-oen', but no installed package")


def faults(packages: str) -> list[str]:
    text = f"models: {{target: {{source: org/name}}}}\nplugins: {packages}\n"
    with pytest.raises(PipelineError) as error:
        parse_pipeline(text, "p.yaml")
    return list(error.value.faults)


def test_a_listed_package_that_is_not_installed_is_a_fault_in_its_line() -> None:
    mistyped, elsewhere = faults("\n  - draftmux\n  - Draft_Mxu\n  - numpy")
    said = "but no installed package of that name publishes plugins"
    assert mistyped == f"p.yaml:4: plugins lists 'Draft_Mxu', {said}; did you mean 'draftmux'?"
    assert elsewhere.startswith(f"p.yaml:5: plugins lists 'numpy', {said}; there is draftmux")


@pytest.mark.parametrize(
    ("packages", "fault"),
    [
        ("draftmux", "p.yaml:2: plugins must be a list or null, not the text 'draftmux'"),
        ("{draftmux: 1}", "p.yaml:2: plugins must be a list or null, not a mapping"),
        ("[draftmux, 5]", "p.yaml:2: plugins[1] must be text, not 5"),
        ("[[draftmux]]", "p.yaml:2: plugins[0] must be text, not a list"),
        ("true", "p.yaml:2: plugins must be a list or null, not true"),
    ],
)
def test_what_is_no_list_of_names_is_a_fault_and_opens_nothing(
    packages: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    registry = plugins.registry
    monkeypatch.setattr(plugins, "registry", lambda *packages: asked.append(packages) or registry(*packages))
    assert faults(packages) == [fault]
    assert asked and all(listed and set(listed[0]) <= {"draftmux"} for listed in asked)


def test_it_is_in_the_schema(draftmux: Callable[..., Run]) -> None:
    found = json.loads(draftmux("schema").stdout)["properties"]["plugins"]
    assert found["anyOf"] == [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
    assert found["default"] is None and "packages" in found["description"]


def test_check_imports_listed_packages_only(
    marked: Any, draftmux: Callable[..., Run], pipeline: Callable[[str], str]
) -> None:
    path = pipeline("  a: {use: one}")
    done = draftmux("check", path, "--set", "plugins=[mark-one]", path=marked.path, env=marked.env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "one  (mark-one 1.2)" in done.stdout
    assert marked.imported() == ["mark_one"]


MODELS = HOOK.replace("drafters", "models")


def test_a_model_s_name_must_come_from_a_listed_package(
    package: Callable[..., Path], draftmux: Callable[..., Run], tmp_path: Path, marked: Any
) -> None:
    source = "from draftmux.models.source import ModelSpec\nTINY = ModelSpec(source='org/tiny', dtype='float32')\n"
    names = package("names", MODELS + "register('tiny', 'tiny_model:TINY')\n", modules={"tiny_model": source})
    path = tmp_path / "m.yaml"
    path.write_text("models:\n  target:\n    device: cpu\n    source: tiny\nplugins: [names]\n")

    def check(*overrides: str) -> Run:
        sets = [word for override in overrides for word in ("--set", override)]
        return draftmux("check", str(path), *sets, path=[names, *marked.path], env=marked.env)

    assert "model.target      org/tiny\n" in check().stdout
    assert 'device: "cpu"\n' in check().stdout and 'dtype: "float32"\n' in check().stdout
    fault, *suspects = check("plugins=[mark-one]").stdout.splitlines()
    assert fault.endswith("m.yaml:4: unknown model 'tiny'; there is none")
    assert "names 1.2 (entry point names-point): the file's list 'plugins' leaves it out; add 'names' to it" in suspects
    assert check("plugins=[]", "models.target.source=org/name").returncode == 0
    assert check("plugins=[]", "models.target.source=./nowhere").returncode == 0
    assert "mark_left" not in marked.imported()


def test_a_hub_id_asks_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "registry", None)
    assert locate.resolve(ModelSpec(source="org/name"))[1] == locate.HubModel("org/name")
