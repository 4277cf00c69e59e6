"""A whole file: defaults, options of every kind, and every fault with its line."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import draftmux.config.load
from draftmux.config.load import parse_pipeline, read_pipeline, shipped
from draftmux.errors import PipelineError
from draftmux.generation import Generation
from draftmux.models.source import ModelSpec
from draftmux.types import Budget, Tap

if TYPE_CHECKING:
    from draftmux.config.spec import PipelineSpec

pytestmark = pytest.mark.usefixtures("fakes")

TARGET = "models: {target: {source: m}}\n"


def parse(text: str, *overrides: str) -> PipelineSpec:
    return parse_pipeline(text, "p.yaml", overrides)


def faults(text: str, *overrides: str) -> list[str]:
    with pytest.raises(PipelineError) as error:
        parse(text, *overrides)
    return list(error.value.faults)


def options_faults(options: str, use: str = "guess") -> list[str]:
    """Faults of one drafter's options, which stand in line 3; the common start is cut off."""
    found = faults(f"{TARGET}drafters:\n  d: {{use: {use}, {options}}}\n")
    assert all(fault.startswith("p.yaml:3: ") for fault in found)
    return [fault.removeprefix("p.yaml:3: ") for fault in found]


def guess(options: str) -> Any:
    return parse(f"{TARGET}drafters:\n  d: {{use: guess, {options}}}\n").drafters["d"].plugin


def test_a_full_file() -> None:
    spec = parse("""\
description: two drafters
models:
  target: {source: big, dtype: bfloat16}
  small: {source: little}
drafters:
  a: {use: guess, size: 4}
  b:
    use: neural
    model: small
router: {use: switch, first: a, second: b}
verifier: {use: lossy}
backend: {use: scripted}
generation: {max_new_tokens: 8, temperature: 1, logit_bias: {3: -1}}
lossless: false
on_plugin_error: skip
""")
    assert (spec.origin, spec.description, spec.lossless, spec.on_plugin_error) == (
        "p.yaml",
        "two drafters",
        False,
        "skip",
    )
    assert spec.models == {"target": ModelSpec(source="big", dtype="bfloat16"), "small": ModelSpec(source="little")}
    assert spec.generation == Generation(max_new_tokens=8, temperature=1.0, logit_bias={3: -1.0})
    assert [(d.name, d.use, d.options, d.line) for d in spec.drafters.values()] == [
        ("a", "guess", {"size": 4}, 6),
        ("b", "neural", {"model": "small"}, 7),
    ]
    assert spec.drafters["a"].plugin.size == 4
    assert (spec.router.name, spec.router.use, spec.router.plugin.uses()) == ("router", "switch", ("a", "b"))
    assert (spec.verifier.use, spec.backend.use) == ("lossy", "scripted")


def test_defaults_without_drafters_decode_plainly() -> None:
    spec = parse(TARGET)
    assert (spec.router.use, spec.router.plugin.drafter) == ("fixed", None)
    assert (spec.verifier.use, spec.backend.use, spec.drafters) == ("exact-match", "static", {})
    assert (spec.lossless, spec.on_plugin_error, spec.generation) == (True, "raise", Generation())


def test_one_drafter_needs_no_router() -> None:
    spec = parse(TARGET + "drafters: {only: {use: guess}}")
    assert (spec.router.use, spec.router.plugin.drafter) == ("fixed", "only")


def test_several_drafters_need_one() -> None:
    text = TARGET + "drafters:\n  b: {use: guess}\n  a: {use: guess}\n"
    assert faults(text) == ["p.yaml:2: several drafters (a, b) and no router; name a router: any, fixed, switch"]


def test_only_the_scripted_backend_goes_without_a_target() -> None:
    assert parse("backend: {use: scripted}").models == {}
    missing = "models.target is missing; name the target model: models: {target: {source: …}}"
    assert faults("lossless: true\n") == [f"p.yaml:1: {missing}"]
    assert faults("lossless: true\nmodels: {draft: {source: x}}") == [f"p.yaml:2: {missing}"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a]", "p.yaml:1: the top level must be a mapping of keys such as drafters, not a list"),
        ("# none\n---\n", "p.yaml:3: the top level must be a mapping of keys such as drafters, not null"),
        (TARGET + "rooter: {use: any}", "p.yaml:2: unknown key 'rooter'; did you mean 'router'?"),
        (TARGET + "telemetry: [x]", "p.yaml:2: unknown key 'telemetry'; there is backend, description, "),
        (TARGET + "5: x", "p.yaml:2: unknown key '5'; there is "),
        (TARGET + "drafters:\n", "p.yaml:2: drafters must be a mapping, not null"),
        (TARGET + "drafters: [a]\n", "p.yaml:2: drafters must be a mapping, not a list"),
        (TARGET + "drafters:\n  5: {use: guess}\n", "p.yaml:3: a key of drafters must be text, not 5"),
        (TARGET + "drafters:\n  d: guess\n", "p.yaml:3: drafters.d must be a mapping such as {use: absent}, not the "),
        (TARGET + "drafters:\n  d: {size: 3}\n", "p.yaml:3: drafters.d lacks the key 'use', which names a drafter; "),
        (TARGET + "drafters:\n  d: {use: 5}\n", "p.yaml:3: drafters.d.use must be text, not 5"),
        (TARGET + "drafters:\n  d: {use: gues}\n", "p.yaml:3: unknown drafter 'gues'; did you mean 'guess'?"),
        (TARGET + "router: {use: guess}\n", "p.yaml:2: unknown router 'guess'; there is any, fixed, switch"),
        (TARGET + "verifier: {use: exact}\n", "p.yaml:2: unknown verifier 'exact'; did you mean 'exact-match'?"),
        ("models:\n  target:\n    dtype: auto\n", "p.yaml:2: models.target lacks the key 'source'"),
        ("models:\n  target:\n", "p.yaml:2: models.target must be a mapping, not null"),
        ("models: 3", "p.yaml:1: models must be a mapping, not 3"),
        (TARGET + "lossless: off", "p.yaml:2: lossless must be true or false, not the text 'off'"),
        (TARGET + "lossless: 'true'", "p.yaml:2: lossless must be true or false, not the text 'true'"),
        (
            TARGET + "on_plugin_error: skipp",
            "p.yaml:2: on_plugin_error cannot be the text 'skipp'; did you mean 'skip'?",
        ),
        (TARGET + "description: 5", "p.yaml:2: description must be text, not 5"),
        (TARGET + "generation:\n  top_k: -1\n", "p.yaml:3: generation: 'top_k' must be >= 0: -1"),
        (TARGET + "generation: {top_p: .nan}", "p.yaml:2: generation.top_p must be a finite number, not nan"),
        (
            TARGET + "generation: {temperature: 1e-9}",
            "p.yaml:2: generation: 'temperature' must be 0 (greedy) or between",
        ),
    ],
)
def test_faults_of_the_file(text: str, fault: str) -> None:
    [found] = faults(text)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("size: 9", 9),
        ("share: 1", 1.0),
        ("share: 1e-3", 0.001),
        ("eager: true", True),
        ("label: '5'", "5"),
        ("label: off", "off"),
        ("mode: slow", "slow"),
        ("level: 4", 4),
        ("limit: null", None),
        ("limit: 3", 3),
        ("mixed: 3", 3),
        ("mixed: 3.5", 3.5),
        ("mixed: [a]", ["a"]),
        ("names: [a, b]", ["a", "b"]),
        ("pairs: [[1], []]", [[1], []]),
        ("depths: [1, 2]", (1, 2)),
        ("weights: {a: 1}", {"a": 1}),
        ("bias: {5: -1}", {5: -1.0}),
        ("budget: {max_depth: 3}", Budget(max_depth=3)),
        ("spare: null", None),
        ("spare: {max_nodes: 1}", Budget(max_nodes=1)),
        ("tap: -2.mlp_out", Tap(-2, "mlp_out")),
        ("folder: a/b", Path("a/b")),
        ("extra: {a: [1, null]}", {"a": [1, None]}),
    ],
)
def test_options_of_every_kind(option: str, value: Any) -> None:
    found = getattr(guess(option), option.partition(":")[0])
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ('size: "5"', "drafters.d.size must be an integer, not the text '5'"),
        ("size: 2.7", "drafters.d.size must be an integer, not 2.7"),
        ("size: 2.0", "drafters.d.size must be an integer, not 2.0"),
        ("size: true", "drafters.d.size must be an integer, not true"),
        ("size: null", "drafters.d.size must be an integer, not null"),
        ("size: [1]", "drafters.d.size must be an integer, not a list"),
        ("size: 0", "drafters.d: 'size' must be >= 1: 0"),
        ("size: 10", "drafters.d: 'size' must be <= 9: 10"),
        ("share: true", "drafters.d.share must be a number, not true"),
        ("share: .inf", "drafters.d.share must be a finite number, not inf"),
        (f"share: {'9' * 400}", f"drafters.d.share must be a finite number, not {'9' * 59}…"),
        ("share: 1.5", "drafters.d: 'share' must be <= 1: 1.5"),
        ("eager: yes", "drafters.d.eager must be true or false, not the text 'yes'"),
        ("eager: 1", "drafters.d.eager must be true or false, not 1"),
        ("label: 5", "drafters.d.label must be text, not 5"),
        ("mode: slo", "drafters.d.mode cannot be the text 'slo'; did you mean 'slow'?"),
        ("mode: 1", "drafters.d.mode must be one of fast, slow, not 1"),
        ("level: 3", "drafters.d.level cannot be 3; there is 1, 2, 4"),
        ("limit: a", "drafters.d.limit must be an integer or null, not the text 'a'"),
        ("mixed: true", "drafters.d.mixed must be a number or an integer or a list, not true"),
        ("mixed: [1]", "drafters.d.mixed[0] must be text, not 1"),
        ("names: a", "drafters.d.names must be a list, not the text 'a'"),
        ("pairs: [[1], [2, x]]", "drafters.d.pairs[1][1] must be an integer, not the text 'x'"),
        ("weights: {a: 1.5}", "drafters.d.weights.a must be an integer, not 1.5"),
        ("weights: {1: 1}", "a key of drafters.d.weights must be text, not 1"),
        ("bias: {a: 1}", "a key of drafters.d.bias must be an integer, not the text 'a'"),
        ("budget: {max_dept: 1}", "unknown key 'max_dept' in drafters.d.budget; did you mean 'max_depth'?"),
        ("budget: {max_depth: -1}", "drafters.d.budget: 'max_depth' must be >= 0: -1"),
        ("budget: 3", "drafters.d.budget must be a mapping, not 3"),
        ("spare: 3", "drafters.d.spare must be a mapping or null, not 3"),
        ("tap: 2.nose", "drafters.d.tap: tap '2.nose' is not LAYER.KIND with KIND one of attn_out, resid_mid, "),
        ("tap: 2.5", "drafters.d.tap must be text or null, not 2.5"),
        ("sise: 5", "unknown key 'sise' in drafters.d; did you mean 'size'?"),
        ("_loaded: 5", "unknown key '_loaded' in drafters.d"),
        ("loaded: 5", "unknown key 'loaded' in drafters.d"),
        ("counter: 5", "unknown key 'counter' in drafters.d"),
    ],
)
def test_faults_of_options(option: str, fault: str) -> None:
    [found] = options_faults(option)
    assert found.startswith(fault)


def test_all_faults_of_a_class_are_told() -> None:
    assert options_faults("size: 0, share: 2, level: 5, mode: x, budget: {max_nodes: -1, max_depth: a}, nmes: []") == [
        "drafters.d.level cannot be 5; there is 1, 2, 4",
        "drafters.d.mode cannot be the text 'x'; there is fast, slow",
        "drafters.d.budget.max_depth must be an integer, not the text 'a'",
        "drafters.d.budget: 'max_nodes' must be >= 0: -1",
        "unknown key 'nmes' in drafters.d; did you mean 'names'?",
        "drafters.d: 'size' must be >= 1: 0",
        "drafters.d: 'share' must be <= 1: 2.0",
    ]


def test_rules_between_fields() -> None:
    assert options_faults("low: 5, high: 3", "pair") == ["drafters.d: 'high' must be above 'low' (5): 3"]
    assert options_faults("low: 50, high: 60", "pair") == [
        "drafters.d: 'low' and 'high' must add up to at most 100: 110"
    ]
    # `high` cannot be judged while `low` is missing or wrong, so nothing is said of it
    assert options_faults("high: 3", "pair") == ["drafters.d lacks the key 'low'"]
    assert options_faults("low: x, high: 3", "pair") == ["drafters.d.low must be an integer, not the text 'x'"]


def test_rules_stand_at_the_value_and_the_class_at_its_key() -> None:
    head = TARGET + "drafters:\n  d:\n    use: pair\n"
    assert faults(head + "    low: 5\n    high: 3\n") == ["p.yaml:6: drafters.d: 'high' must be above 'low' (5): 3"]
    [fault] = faults(head + "    low: 50\n    high: 60\n")
    assert fault.startswith("p.yaml:3: drafters.d: 'low' and 'high' must add up")
    assert faults(head + "    low: 50\n") == ["p.yaml:3: drafters.d lacks the key 'high'"]


def test_all_faults_of_a_file_sorted_by_line() -> None:
    text = """\
on_plugin_error: ignore
drafters:
  a: {use: gess}
  b: {use: guess, size: "3"}
generation: {max_new_tokens: 0}
lossless: maybe
models: {target: {source: m, dtype: bf16}}
router: {use: switch, first: a, second: c}
"""
    found = faults(text, "backend.use=tf", "generation.seed=1.5")
    places = [fault.partition(": ")[0] for fault in found]
    assert places[:7] == [f"p.yaml:{line}" for line in (1, 3, 4, 5, 6, 7, 8)]
    assert sorted(places[7:]) == ["--set backend.use=tf", "--set generation.seed=1.5"]


@pytest.mark.parametrize(
    ("use", "fault"),
    [
        ("not-attrs", "drafter 'not-attrs' of package fakes 1.2 is unusable: <class '"),
        (
            "complex",
            "drafter 'complex' of package fakes 1.2 is unusable: option 'z' of class Complex: a pipeline file ",
        ),
        ("unreadable", "drafter 'unreadable' of package fakes 1.2 is unusable: option 'weights' of class Unreadable: "),
        (
            "unfinished",
            "drafter 'unfinished' of package fakes 1.2 is unusable: class Unfinished is abstract; it still ",
        ),
        (
            "incomplete",
            "drafter 'incomplete' breaks the drafter protocol: it lacks uses, bind, begin, propose, observe",
        ),
    ],
)
def test_plugins_that_cannot_be_used(use: str, fault: str) -> None:
    [found] = options_faults("", use)
    assert found.startswith(fault)


def test_a_plugin_that_cannot_be_imported_shows_the_original_traceback() -> None:
    [fault] = options_faults("", "absent")
    assert fault.startswith("drafter 'absent' of package gone 0.1 (entry point gone-point) could not be loaded")
    assert "Traceback" in fault and "No module named 'draftmux.nowhere'" in fault


@pytest.mark.usefixtures("broken_package")
def test_packages_that_may_have_brought_an_unknown_plugin() -> None:
    [fault] = options_faults("", "guesser")
    assert "unknown drafter 'guesser'; did you mean 'guess'?" in fault
    assert "shaky 3.0 (entry point shaky-point)" in fault and "ImportError: no libshaky" in fault


def test_options_of_a_plugin_that_is_unknown_are_left_alone() -> None:
    assert len(options_faults("anything: goes", "gess")) == 1


def test_refused_values_are_told_once() -> None:
    found = faults(TARGET + "drafters:\n  d: {use: guess, size: !x 5, names: !y [a]}\nrouter: !z {use: any}\n")
    assert [fault.split(" is refused")[0] for fault in found] == [
        "p.yaml:3: YAML tag '!x'",
        "p.yaml:3: YAML tag '!y'",
        "p.yaml:4: YAML tag '!z'",
    ]


def test_overrides() -> None:
    text = TARGET + "drafters: {d: {use: guess, size: 2}}\n"
    spec = parse(
        text,
        "drafters.d.size=4",
        "generation.temperature=0.5",
        "generation.logit_bias.7=1",
        "generation.stop=[a, 'b: c']",
        "models.draft={source: x=y}",
        "drafters.d.limit=",
        "drafters.d.size=5",
    )
    assert spec.drafters["d"].options == {"size": 5, "limit": None}
    assert spec.generation == Generation(temperature=0.5, logit_bias={7: 1.0}, stop=["a", "b: c"])
    assert spec.models["draft"].source == "x=y"


def test_an_override_of_an_alias_changes_one_place() -> None:
    text = TARGET + "drafters:\n  a: &x {use: guess, size: 2}\n  b: *x\nrouter: {use: any}\n"
    spec = parse(text, "drafters.b.size=3")
    assert [drafter.plugin.size for drafter in spec.drafters.values()] == [2, 3]


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("drafters.d.size", "write key.path=value, such as generation.temperature=0.7"),
        ("=5", "write key.path=value, such as generation.temperature=0.7"),
        ("drafters..size=5", "write key.path=value, such as generation.temperature=0.7"),
        ("drafters.d.size.x=5", "nothing can be set below 'size', which is 2"),
        ("drafters.d.names.0=5", "nothing can be set below 'names', which is a list"),
        ("drafters.d.size=five", "drafters.d.size must be an integer, not the text 'five'"),
        ("drafters.d.size=0", "drafters.d: 'size' must be >= 1: 0"),
        ("drafters.d.sise=1", "unknown key 'sise' in drafters.d; did you mean 'size'?"),
        ("drafters.e.size=1", "drafters.e lacks the key 'use', which names a drafter; there is "),
        ("generatoin.seed=1", "unknown key 'generatoin'; did you mean 'generation'?"),
        ("generation.seed=!x 1", "YAML tag '!x' is refused, since nothing executes from data; remove it"),
        ("generation.stop=[a", "not valid YAML at column 3: expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_faults_of_overrides(override: str, fault: str) -> None:
    text = TARGET + "drafters: {d: {use: guess, size: 2, names: [a]}}\nrouter: {use: any}\n"
    [found] = faults(text, override)
    assert found.startswith(f"--set {override}: {fault}")


def test_a_fault_in_the_file_keeps_its_line_beside_overrides() -> None:
    assert faults(TARGET + "generation:\n  sead: 1\n", "generation.sead=2") == [
        "p.yaml:3: unknown key 'sead' in generation; did you mean 'seed'?"
    ]


def test_reading_files(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("\ufeff" + TARGET + "description: größer\r\n", encoding="utf-8")
    spec = read_pipeline(path, ["generation.seed=3"])
    assert (spec.origin, spec.description, spec.generation.seed) == (str(path), "größer", 3)
    path.write_bytes(b"description: \xff")
    for name, fault in ((path, "not UTF-8 text at byte 13; save it as UTF-8"), (tmp_path, "cannot be read: ")):
        with pytest.raises(PipelineError) as error:
            read_pipeline(name)
        assert error.value.faults[0].startswith(f"{name}: {fault}") and len(error.value.faults) == 1


def test_shipped_pipelines_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quick.yaml").write_text(TARGET + "lossless: 5", encoding="utf-8")
    (tmp_path / "__init__.py").touch()
    folder: Traversable = tmp_path
    monkeypatch.setattr(draftmux.config.load, "files", lambda package: {"draftmux.pipelines": folder}[package])
    assert shipped() == ["quick"]
    for name, fault in (
        ("quick", "quick.yaml:2: lossless must be true or false, not 5"),
        ("quack", "quack: no such file, and no shipped pipeline of that name; did you mean 'quick'?"),
    ):
        with pytest.raises(PipelineError) as error:
            read_pipeline(name)
        assert error.value.faults == (fault,)


def test_reading_is_fast() -> None:
    text = TARGET + "drafters:\n" + "".join(f"  d{i}: {{use: guess, size: 2, names: [a]}}\n" for i in range(20))
    text += "router: {use: any}\n"
    parse(text)

    def seconds() -> float:
        start = time.perf_counter()
        parse(text)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.1


def test_reading_and_the_schema_import_no_torch() -> None:
    code = (
        "import sys, draftmux.config.load as load, draftmux.config.schema as schema\n"
        f"load.describe(load.parse_pipeline({TARGET!r} + 'drafters: {{d: {{use: pld}}}}', 'p'))\n"
        "schema.json_schema()\n"
        "sys.exit([name for name in ('torch', 'transformers') if name in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b.yaml"])
def test_a_name_that_no_file_can_have_is_one_fault(name: str) -> None:
    with pytest.raises(PipelineError) as caught:
        read_pipeline(name)
    assert len(caught.value.faults) == 1


def test_no_room_for_any_request_is_a_fault_of_the_file() -> None:
    with pytest.raises(PipelineError, match="max_batch"):
        parse_pipeline("models: {target: {source: a/b}}\nmax_batch: 0\n", "p.yaml")
