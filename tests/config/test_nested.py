"""A plugin within a plugin: read, checked, described and in the schema like any other."""

from __future__ import annotations

import jsonschema
import pytest

from draftmux.config.describe import describe
from draftmux.config.load import parse_pipeline
from draftmux.config.schema import json_schema
from draftmux.errors import PipelineError
from draftmux.routers.bandit.router import Bandit
from draftmux.routers.cascade import Cascade
from draftmux.routers.match_length import MatchLength

HEAD = """models: {target: {source: smollm2}}
drafters:
  copy: {use: context-copy}
  pld: {use: pld}
"""
NESTED = "router: {use: match-length, copy: copy, otherwise: {use: bandit, arms: [{drafter: pld}, {}], policy: exp3}}\n"


def parse(router: str, overrides: tuple[str, ...] = ()):  # type: ignore[no-untyped-def]
    return parse_pipeline(HEAD + router, "pipeline.yaml", overrides)


def test_a_router_holds_a_router() -> None:
    spec = parse(NESTED)
    outer = spec.router.plugin
    assert isinstance(outer, MatchLength) and isinstance(outer.otherwise, Bandit)
    assert outer.otherwise.policy == "exp3" and outer.uses() == ("copy", "pld")
    [row] = [row for row in describe(spec) if row.part == "router"]
    assert row.options is not None and row.options["otherwise"]["use"] == "bandit"
    assert row.options["otherwise"]["policy"] == "exp3"


def test_routers_nest_as_deep_as_one_likes() -> None:
    inner = "{use: match-length, copy: pld, min_match: 2, otherwise: {use: cascade, order: [pld, copy]}}"
    outer = parse(f"router: {{use: match-length, copy: copy, otherwise: {inner}}}\n").router.plugin
    assert isinstance(outer.otherwise.otherwise, Cascade) and outer.otherwise.min_match == 2


def test_options_within_can_be_overridden() -> None:
    outer = parse(NESTED, ("router.otherwise.policy=ucb",)).router.plugin
    assert outer.otherwise.policy == "ucb"
    assert parse(NESTED, ("router.otherwise=pld",)).router.plugin.otherwise == "pld"


@pytest.mark.parametrize(
    ("router", "said"),
    [
        ("{use: nobody}", "unknown router 'nobody'"),
        ("{use: bandit, arms: [{drafter: nowhere}, {}]}", "nowhere"),
        ("{use: bandit, arms: [{drafter: pld}, {}], policy: luck}", "policy"),
        ("{use: bandit, armz: []}", "armz"),
        ("{use: pld}", "unknown router 'pld'"),
        ("3", "otherwise"),
    ],
)
def test_faults_within_are_named_with_their_line(router: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said) as caught:
        parse(f"router:\n  use: match-length\n  copy: copy\n  otherwise: {router}\n")
    assert ":8:" in str(caught.value)


def test_a_budget_beside_an_inner_router_is_refused() -> None:
    with pytest.raises(PipelineError, match="otherwise_budget"):
        parse(NESTED.replace("copy: copy,", "copy: copy, otherwise_budget: {max_nodes: 3},"))


def test_the_schema_knows_it() -> None:
    schema = json_schema()
    good = {"use": "match-length", "copy": "copy", "otherwise": {"use": "cascade", "order": ["pld"]}}
    file = {"models": {"target": {"source": "x"}}, "drafters": {"copy": {"use": "pld"}}, "router": good}
    jsonschema.validate(file, schema)
    jsonschema.validate(file | {"router": good | {"otherwise": "pld"}}, schema)
    for wrong in ({"use": "cascade"}, {"use": "nobody"}, 3):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(file | {"router": good | {"otherwise": wrong}}, schema)
