from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from draftmux.bench.comparable import check_comparable, run_names
from draftmux.config.spec import PluginSpec
from draftmux.errors import PipelineError
from draftmux.generation import Generation
from draftmux.models.source import ModelSpec

MakeSpec = Callable[..., Any]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/pld.yaml", "copy.yml", "demo"], ["pld", "copy", "demo"]),
        (["a/x.yaml", "b/x.yaml", "y.yaml"], ["a/x.yaml", "b/x.yaml", "y"]),
        (["x.yaml", "x.yaml", "x.yaml"], ["x", "x#2", "x#3"]),
        (["plain.yaml"], ["plain.yaml"]),
    ],
)
def test_names(paths: list[str], names: list[str]) -> None:
    assert run_names(paths) == names


def test_a_shipped_pipeline_cannot_be_called_like_a_baseline() -> None:
    with pytest.raises(PipelineError, match="cannot be called 'transformers'"):
        run_names(["transformers"])


def test_same_target_and_generation_may_be_compared(make_spec: MakeSpec) -> None:
    one = make_spec(models={"target": ModelSpec(source="m"), "small": ModelSpec(source="s")})
    two = evolve(one, origin="two.yaml", models={"target": ModelSpec(source="m")}, description="other")
    check_comparable([one, two])
    check_comparable([one])


def test_constraints_are_compared_by_their_names_too(make_spec: MakeSpec) -> None:
    pytest.importorskip("llguidance", reason="needs the extra `structured`")
    from draftmux.constraints.grammar import Lark, Regex

    one = make_spec(origin="one.yaml", generation=Generation(constraint=Regex(pattern="a")))
    check_comparable([one, evolve(one, generation=Generation(constraint=Regex(pattern="a")))])
    two = evolve(one, origin="two.yaml", generation=Generation(constraint=Regex(pattern="b")))
    three = evolve(one, origin="three.yaml", generation=Generation(constraint=Lark(grammar='start: "a"')))
    with pytest.raises(PipelineError) as caught:
        check_comparable([one, two, three])
    first, second = caught.value.faults
    rule = "{'use': 'regex', 'pattern': 'a'}"
    assert f"generation.constraint is {{'use': 'regex', 'pattern': 'b'}}, but {rule} in one.yaml" in first
    assert "generation.constraint is {'use': 'lark', " in second


def test_all_differences_are_named_with_both_values(make_spec: MakeSpec) -> None:
    one = make_spec(origin="one.yaml", models={"target": ModelSpec(source="m")})
    two = evolve(
        one,
        origin="two.yaml",
        models={"target": ModelSpec(source="m", dtype="float32")},
        generation=Generation(temperature=0.5),
    )
    three = evolve(one, origin="three.yaml", backend=PluginSpec("backend", "h100", None, {"graphs": True}))
    with pytest.raises(PipelineError) as caught:
        check_comparable([one, two, three])
    faults = caught.value.faults
    assert len(faults) == 4
    assert faults[0].startswith("two.yaml: models.target.dtype is 'float32', but 'auto' in one.yaml")
    assert "--set models.target.dtype=" in faults[0]
    assert faults[1].startswith("two.yaml: generation.temperature is 0.5, but 0.0 in one.yaml")
    assert faults[2].startswith("three.yaml: backend.use is 'h100', but 'test' in one.yaml")
    assert faults[3].startswith("three.yaml: backend.graphs is True, but None in one.yaml")
