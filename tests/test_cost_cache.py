from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmux.backends.transformers.backend import TransformersBackend
from draftmux.cost_cache import BYTES, keep, recall, remembered, setting
from draftmux.costs import CostCurve
from draftmux.models.source import ModelSpec
from draftmux.testing.targets import tiny_model

CURVE = CostCurve((1, 8, 208), (0.038, 0.0437, 0.1 + 0.2))
OTHER = CostCurve((1, 2), (1.0, 2.0))
KEY = {"model": {"source": "ä", "revision": None}, "threads": 2}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRAFTMUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DRAFTMUX_COST_CACHE", raising=False)
    return tmp_path / "cache" / "costs"


def only(folder: Path) -> Path:
    [path] = folder.iterdir()  # nothing half-written lies beside it
    return path


def refuse() -> CostCurve:
    raise AssertionError("measured although a curve is kept")


def test_what_is_kept_is_given_back_to_the_last_bit(folder: Path) -> None:
    assert remembered(KEY, lambda: CURVE) == CURVE
    assert remembered(KEY, refuse) == CURVE
    assert "threads" in only(folder).read_text("utf-8")


def test_a_sound_file_is_read_whoever_wrote_it(folder: Path) -> None:
    keep(KEY, CURVE)
    only(folder).write_text(planted(), "utf-8")
    assert recall(KEY) == CostCurve((1, 8), (1.0, 2.0))


def test_settings_do_not_share_curves(folder: Path) -> None:
    keep(KEY, CURVE)
    for changed in ({**KEY, "threads": 4}, {**KEY, "model": None}, {"threads": 2}):
        assert remembered(changed, lambda: OTHER) == OTHER
    assert recall(KEY) == CURVE
    assert len(list(folder.iterdir())) == 4


def test_a_new_measurement_takes_the_place_of_the_old(folder: Path) -> None:
    keep(KEY, CURVE)
    keep(KEY, OTHER)
    assert recall(KEY) == OTHER
    only(folder)


def planted(**changes: Any) -> str:
    return json.dumps({"key": KEY, "rows": [1, 8], "seconds": [1.0, 2.0]} | changes)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "null",
        "[]",
        "[" * 60_000,
        '"\ud800"',
        planted(key={"threads": 2}),
        planted(rows=[1]),
        planted(rows=[]),
        planted(rows=[8, 1]),
        planted(rows=[0, 8]),
        planted(rows=[True, 8]),
        planted(rows=[1.0, 8.5]),
        planted(rows="18"),
        planted(rows=None),
        planted(seconds=[1.0, 0.0]),
        planted(seconds=[1.0, -2.0]),
        planted(seconds=[1.0, float("nan")]),
        planted(seconds=[1.0, float("inf")]),
        planted(seconds=[1.0, "2"]),
        planted(seconds=[1.0, None]),
        planted(seconds=[1.0, 10**400]),
        planted(seconds={"1": 2}),
        planted(more=1),
        planted() + " " * BYTES,
        "\x80\x04\x95",
    ],
)
def test_what_is_no_curve_of_this_setting_is_measured_again_and_replaced(content: str, folder: Path) -> None:
    keep(KEY, CURVE)
    path = only(folder)
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert recall(KEY) is None
    assert remembered(KEY, lambda: OTHER) == OTHER
    assert remembered(KEY, refuse) == OTHER


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_survived(folder: Path, content: bytes) -> None:
    keep(KEY, CURVE)
    only(folder).write_bytes(content)
    assert remembered(KEY, lambda: OTHER) == OTHER
    assert recall(KEY) == OTHER


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=json_values, seconds=json_values)
def test_any_values_give_a_sound_curve_or_none(folder: Path, rows: Any, seconds: Any) -> None:
    keep(KEY, CURVE)
    only(folder).write_text(planted(rows=rows, seconds=seconds), "utf-8")
    found = recall(KEY)
    assert found is None or (list(found.rows) == rows and all(0 < s < float("inf") for s in found.seconds))


def test_half_of_a_kept_file_is_no_curve(folder: Path) -> None:
    keep(KEY, CURVE)
    whole = only(folder).read_bytes()
    for length in range(len(whole)):
        only(folder).write_bytes(whole[:length])
        assert recall(KEY) is None


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false", " no "])
def test_switched_off_nothing_is_read_or_written(word: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(KEY, CURVE)
    monkeypatch.setenv("DRAFTMUX_COST_CACHE", word)
    before = only(folder).read_bytes()
    assert recall(KEY) is None
    assert remembered(KEY, lambda: OTHER) == OTHER
    assert only(folder).read_bytes() == before


def test_without_a_key_nothing_is_kept(folder: Path) -> None:
    assert remembered(None, lambda: CURVE) == CURVE
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_costs_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DRAFTMUX_CACHE", str(tmp_path / "file"))
    assert remembered(KEY, lambda: CURVE) == CURVE
    assert remembered(KEY, lambda: OTHER) == OTHER


def test_a_full_disk_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    keep(KEY, CURVE)
    monkeypatch.setattr(Path, "replace", full)
    keep(KEY, OTHER)
    assert recall(KEY) == CURVE
    only(folder)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_something_else_in_the_files_place_is_no_curve(make: Any, folder: Path) -> None:
    keep(KEY, CURVE)
    path = only(folder)
    path.unlink()
    make(path)
    assert recall(KEY) is None  # and nobody waits for the pipe's writer
    assert remembered(KEY, lambda: OTHER) == OTHER


def test_the_setting_tells_everything_apart_that_changes_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def named(model: Any, spec: Any = None, backend: str = "transformers", **options: Any) -> str:
        spec = spec or ModelSpec(source="org/a")
        return json.dumps(setting(model, spec, backend, TransformersBackend(**options)), sort_keys=True)

    llama = tiny_model("llama")
    first = named(llama)
    assert named(tiny_model("llama")) == first
    others = [
        named(tiny_model("gpt2")),
        named(tiny_model("llama", 128)),
        named(tiny_model("llama").float()),
        named(llama, ModelSpec(source="org/a", revision="v2")),
        named(llama, ModelSpec(source="org/b")),
        named(llama, backend="static"),
        named(llama, attention="eager"),
    ]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 97)
    others.append(named(llama))
    assert len({first, *others}) == 1 + len(others)
