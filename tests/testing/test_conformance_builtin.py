"""Every registered plugin of this environment passes the conformance kit; a new one is covered without a line here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import torch

from draftmux.plugins import registry
from draftmux.testing import check_backend, check_constraint, check_drafter, check_router, check_verifier
from draftmux.testing.conformance.kit import CHECKS

if TYPE_CHECKING:
    from draftmux.registry import Entry

CHECK = {
    "drafter": check_drafter,
    "router": check_router,
    "verifier": check_verifier,
    "backend": check_backend,
    "constraint": check_constraint,
}
SCHEMA = {
    "type": "object",
    "properties": {"cat": {"type": "integer"}, "hat": {"enum": ["the", "🙂"]}},
    "required": ["cat"],
    "additionalProperties": False,
}
# Options that a plugin cannot do without, or that make it busy on short texts.
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("drafter", "copyspec"): {"gamma": 1},
    ("drafter", "context-copy"): {"min_match": 1},
    ("drafter", "merge"): {"of": ["one", "two"]},
    ("router", "fixed"): {"drafter": "one"},
    ("router", "cascade"): {"order": ["one", "two", "three"]},
    ("router", "match-length"): {"copy": "one", "otherwise": {"use": "cascade", "order": ["two", "three"]}},
    ("router", "bandit"): {"arms": [{"drafter": "one"}, {"drafter": "two", "budget": {"max_nodes": 3}}, {}]},
    ("router", "cost-aware"): {"drafters": ["one", "two", "three"]},
    ("verifier", "random-arbiter"): {"rate": 0.5},
    ("backend", "scripted"): {"table": {0: [1.0, 2.0, 0.5], 1: [0.0, 1.0, 3.0], 2: [2.0, 0.0, 1.0]}, "max_length": 40},
    ("constraint", "json-schema"): {"schema": SCHEMA},
    ("constraint", "regex"): {"pattern": "(the|a) (cat|hat)( and (the|a) hat)*"},
    ("constraint", "lark"): {"grammar": 'start: "[" start "]" | "cat"'},
}
# These read files of their own, which other tests give them when they run the kit.
ELSEWHERE = {
    ("drafter", "sps"): "tests/lossless/test_neural.py",
    ("drafter", "eagle3"): "tests/lossless/test_neural.py",
    ("verifier", "cospec-arbiter"): "tests/verifiers/cospec/test_learned.py",
    ("verifier", "divergence-arbiter"): "tests/verifiers/cospec/test_divergence.py",
    ("router", "linear-probe"): "tests/routers/test_linear_probe.py",
    ("router", "accepted-length"): "tests/routers/test_gates.py",
}
OWN = [entry for entry in registry() if entry.package == "draftmux" and entry.kind in CHECK]


def named(entry: Entry) -> str:
    return f"{entry.kind}-{entry.name}"


@pytest.mark.parametrize("entry", OWN, ids=named)
def test_it_conforms(entry: Entry) -> None:
    if entry.name == "h100" and not torch.cuda.is_available():
        pytest.skip("h100 refuses to be bound here; tests/backends/test_h100.py runs its passes in the interpreter")
    if (entry.kind, entry.name) in ELSEWHERE:
        pytest.skip(f"{ELSEWHERE[entry.kind, entry.name]} puts it through the kit")
    options = OPTIONS.get((entry.kind, entry.name))
    required = [field.name for field in attrs.fields(entry.load()) if field.default is attrs.NOTHING]
    assert options is not None or not required, f"give minimal options for {named(entry)} in OPTIONS: {required}"
    report = CHECK[entry.kind](entry.name, **(options or {}))
    assert report.doubtful == []
    assert all(inspect.cleandoc(finding.asks) for finding in report.findings)


@pytest.mark.parametrize("kind", CHECKS)
def test_every_check_is_explained(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "test-a-plugin.md").read_text(encoding="utf-8")
    table = page.partition(f"| a {kind} |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)} == set(CHECKS[kind].all)


def test_there_are_plugins_of_every_kind() -> None:
    assert {entry.kind for entry in OWN} == set(CHECK) == set(CHECKS)
