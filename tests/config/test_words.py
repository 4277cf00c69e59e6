"""Words that stand for a value: `max_nodes: auto`."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from draftmux.config.load import describe, parse_pipeline
from draftmux.config.schema import json_schema
from draftmux.errors import PipelineError
from draftmux.types import AUTO, UNLIMITED, Budget

FILE = """models: {{target: {{source: org/name}}}}
drafters: {{copy: {{use: pld}}}}
router:
  use: fixed
  drafter: copy
  budget:
    max_depth: 9
    max_nodes: {}
"""


def read(value: str, *overrides: str) -> Budget:
    budget: Budget = parse_pipeline(FILE.format(value), "p.yaml", overrides).router.plugin.budget
    return budget


@pytest.mark.parametrize("written", ["auto", "'auto'", '"auto"'])
def test_auto_is_read(written: str) -> None:
    assert read(written) == Budget(max_nodes=AUTO, max_depth=9)


def test_numbers_are_read_as_before_and_overrides_go_both_ways() -> None:
    assert read("7") == Budget(max_nodes=7, max_depth=9)
    assert read("7", "router.budget.max_nodes=auto") == read("auto")
    assert read("auto", "router.budget.max_nodes=7") == read("7")


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("auot", "router.budget.max_nodes must be an integer or auto, not the text 'auot'; did you mean 'auto'?"),
        ("Auto", "router.budget.max_nodes must be an integer or auto, not the text 'Auto'; did you mean 'auto'?"),
        ("unlimited", "router.budget.max_nodes must be an integer or auto, not the text 'unlimited'"),
        ("1.5", "router.budget.max_nodes must be an integer or auto, not 1.5"),
        ("null", "router.budget.max_nodes must be an integer or auto, not null"),
        ("[auto]", "router.budget.max_nodes must be an integer or auto, not a list"),
        ("-1", "router.budget: 'max_nodes' must be >= 0: -1"),
    ],
)
def test_everything_else_is_a_fault_with_its_line(written: str, fault: str) -> None:
    with pytest.raises(PipelineError) as raised:
        read(written)
    [found] = raised.value.faults
    assert fault in found
    assert "p.yaml:8" in found


def test_other_sizes_take_no_word() -> None:
    with pytest.raises(PipelineError, match=r"max_depth must be an integer, not the text 'auto'"):
        read("7", "router.budget.max_depth=auto")


def test_describe_writes_the_word_back() -> None:
    def shown(value: str) -> object:
        [row] = [row for row in describe(parse_pipeline(FILE.format(value), "p.yaml")) if row.part == "router"]
        assert row.options is not None
        return row.options["budget"]

    assert shown("auto") == {"max_nodes": "auto", "max_depth": 9, "max_branches": UNLIMITED}
    assert shown("3") == {"max_nodes": 3, "max_depth": 9, "max_branches": UNLIMITED}


def test_the_schema_takes_what_files_may_hold() -> None:
    budget = json_schema()["$defs"]["router.fixed"]["properties"]["budget"]
    validator = Draft202012Validator(json.loads(json.dumps(budget)))
    for sound in ({"max_nodes": "auto"}, {"max_nodes": 0}, {"max_nodes": 5, "max_depth": 2}):
        validator.validate(sound)
    for wrong in ({"max_nodes": "auot"}, {"max_nodes": -1}, {"max_nodes": 1.5}, {"max_depth": "auto"}):
        assert not validator.is_valid(wrong)


def test_whoever_does_not_know_the_word_sees_no_limit() -> None:
    auto = Budget(max_nodes=AUTO)
    assert auto.within(Budget()) == Budget().within(auto) == auto
    assert auto.within(Budget(max_nodes=8)) == Budget(max_nodes=8)
    assert AUTO > 1 << 24
